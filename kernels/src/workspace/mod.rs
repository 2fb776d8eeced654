//! Memory that a thread's operations use again: the tensors of a step are those of the step before, and
//! an operation works in what the last one worked in. A decode step that is like the one before asks
//! nobody for memory.

mod activations;
mod scratch;

use burn::tensor::Tensor;

pub(crate) use activations::{give_back, tensor};
pub(crate) use scratch::Scratch;

/// Leaves the memory of what nobody reads any more to the operations that this thread comes to; every
/// operation does so with what it takes. A tensor on a GPU is dropped, as one is that others have, too.
pub fn recycle(x: Tensor<2>) {
    if let Some(x) = crate::tensors::from_tensor(x) {
        give_back(x);
    }
}
