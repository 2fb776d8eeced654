//! Tensors on the CPU whose memory operations reuse. An operation takes its result from tensors
//! that the thread has finished reading, and leaves its inputs for later operations.

use std::cell::RefCell;

use burn::tensor::DType;
use burn_flex::FlexTensor;

use crate::allocator::try_zeroed;
use crate::tensors::{dense, dims2, from_rows, values, values_mut};

/// Most tensors that a thread keeps: those of a layer, for several numbers of rows.
const KEPT: usize = 64;

/// Most elements that a thread keeps: 64 MiB, so that a chunk of a long prompt finds its tensors,
/// too.
const KEPT_ELEMENTS: usize = 16 << 20;

thread_local! {
    static FREE: RefCell<Free> = const { RefCell::new(Free::new()) };
}

/// Tensors without another owner.
struct Free {
    /// The tensor that was left last comes last, because it is in the cache.
    tensors: Vec<FlexTensor>,
    elements: usize,
}

impl Free {
    const fn new() -> Self {
        Self { tensors: Vec::new(), elements: 0 }
    }

    fn take(&mut self, shape: [usize; 2]) -> Option<FlexTensor> {
        let at = self.tensors.iter().rposition(|tensor| dims2(tensor) == shape)?;
        self.elements -= shape[0] * shape[1];
        Some(self.tensors.remove(at))
    }

    fn put(&mut self, tensor: FlexTensor) {
        self.elements += tensor.layout().num_elements();
        self.tensors.push(tensor);
        while self.tensors.len() > KEPT || self.elements > KEPT_ELEMENTS {
            self.elements -= self.tensors.remove(0).layout().num_elements();
        }
    }
}

/// Returns a dense `[rows, cols]` tensor of f32 without another owner. Its elements are undefined
/// until they are written.
pub(crate) fn tensor(rows: usize, cols: usize) -> FlexTensor {
    let kept = FREE.with_borrow_mut(|free| free.take([rows, cols]));
    kept.unwrap_or_else(|| from_rows(zeros(rows * cols), rows, cols))
}

/// Returns `x`, dense, for an operation that writes over it. A tensor with another owner is copied.
pub(crate) fn owned(x: FlexTensor) -> FlexTensor {
    let x = dense(x);
    if x.is_unique() {
        return x;
    }
    let [rows, cols] = dims2(&x);
    let mut copy = tensor(rows, cols);
    values_mut(&mut copy).copy_from_slice(values(&x));
    copy
}

/// Allocates memory for new activations. Operations return tensors and no errors. If the system
/// refuses memory, the step therefore panics. The worker reports that, and the process continues.
#[expect(clippy::panic, reason = "a step that lacks memory fails alone")]
fn zeros(len: usize) -> Vec<f32> {
    try_zeroed(len, "activations").unwrap_or_else(|error| panic!("{error}"))
}

/// Leaves a tensor that was read to later operations, if it has no other owner.
pub(crate) fn give_back(x: FlexTensor) {
    let layout = x.layout();
    let is_whole = layout.contiguous_offsets() == Some((0, layout.num_elements()))
        && x.bytes().len() == size_of::<f32>() * layout.num_elements();
    if is_whole && x.is_unique() && x.dtype() == DType::F32 && layout.shape().num_dims() == 2 {
        FREE.with_borrow_mut(|free| free.put(x));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(x: &FlexTensor) -> *const u8 {
        x.bytes().as_ptr()
    }

    #[test]
    fn the_memory_of_a_read_tensor_is_written_next() {
        let (a, b) = (tensor(3, 5), tensor(3, 5));
        let (first, second) = (address(&a), address(&b));
        assert_ne!(first, second);
        give_back(a);
        assert_ne!(address(&tensor(5, 3)), first, "another shape");
        assert_eq!(address(&tensor(3, 5)), first);
    }

    #[test]
    fn a_tensor_with_another_owner_stays_as_it_is() {
        let a = tensor(2, 9);
        let shared = a.clone();
        give_back(a);
        assert_ne!(address(&tensor(2, 9)), address(&shared));
        let base = tensor(4, 4);
        let rows = burn_flex::Layout::contiguous([2, 4].into());
        let part = FlexTensor::from_arc(base.data_arc(), rows, DType::F32);
        drop(base);
        let start = address(&part);
        give_back(part);
        assert_ne!(address(&tensor(2, 4)), start, "a part of a larger one");
    }

    #[test]
    fn a_tensor_without_another_owner_is_written_over() {
        let a = tensor(6, 5);
        let start = address(&a);
        let a = owned(a);
        assert_eq!(address(&a), start);
        let mut copy = owned(a.clone());
        assert_eq!(values(&copy), values(&a));
        values_mut(&mut copy)[0] = 7.0;
        assert_ne!(values(&a)[0], 7.0);
    }

    #[test]
    fn no_more_is_kept_than_the_limit() {
        for rows in 1..=2 * KEPT {
            give_back(tensor(rows, 7));
        }
        let kept = || FREE.with_borrow(|free| (free.tensors.len(), free.elements));
        assert_eq!(kept().0, KEPT);
        give_back(tensor(1, KEPT_ELEMENTS - 100));
        give_back(tensor(1, KEPT_ELEMENTS + 100));
        assert!(kept().1 <= KEPT_ELEMENTS, "{:?}", kept());
        let sum = FREE.with_borrow(|free| {
            free.tensors.iter().map(|tensor| tensor.layout().num_elements()).sum::<usize>()
        });
        assert_eq!(kept().1, sum);
    }
}
