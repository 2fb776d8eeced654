//! Memory that a thread's operations reuse. The tensors of a step take over the memory of the step
//! before, and an operation reuses the scratch memory of the operation before. A decode step of the
//! same size as the step before allocates no memory.

mod activations;
mod scratch;

use burn::tensor::Tensor;

pub(crate) use activations::{give_back, owned, tensor};
pub(crate) use scratch::Scratch;

/// Keeps the memory of a tensor for later operations of this thread, because the tensor is no
/// longer read. Every operation calls this for its inputs. A tensor on a GPU, or with another
/// owner, is only dropped.
pub fn recycle(x: Tensor<2>) {
    if let Some(x) = crate::tensors::from_tensor(x) {
        give_back(x);
    }
}
