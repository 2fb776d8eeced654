//! Memory that a thread's operations reuse. The tensors of a step are those of the step before, and
//! an operation reuses the scratch memory of the last one. A decode step like the one before
//! allocates no memory.

mod activations;
mod scratch;

use burn::tensor::Tensor;

pub(crate) use activations::{give_back, tensor};
pub(crate) use scratch::Scratch;

/// Leaves the memory of a tensor that is no longer read to later operations of this thread. Every
/// operation does so with its inputs. A tensor on a GPU, or with another owner, is only dropped.
pub fn recycle(x: Tensor<2>) {
    if let Some(x) = crate::tensors::from_tensor(x) {
        give_back(x);
    }
}
