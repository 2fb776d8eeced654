//! Conversions between burn's CPU tensors and plain slices.

use burn::backend::{BackendTensor, DispatchTensor, DispatchTensorKind};
use burn::tensor::{Tensor, TensorData};
use burn_flex::FlexTensor;

/// Returns `x` with its elements in row-major order, copied only where they are not.
pub(crate) fn dense(x: FlexTensor) -> FlexTensor {
    if x.layout().contiguous_offsets().is_some() { x } else { x.to_contiguous() }
}

/// Returns the elements of a tensor that went through [`dense`].
pub(crate) fn values(x: &FlexTensor) -> &[f32] {
    x.as_slice::<f32>().unwrap_or_else(|| unreachable!("a dense f32 tensor is needed"))
}

/// Returns the same elements for writing, from a copy if the tensor has another owner.
pub(crate) fn values_mut(x: &mut FlexTensor) -> &mut [f32] {
    let (start, end) = x.layout().contiguous_offsets().unwrap_or((0, 0));
    &mut x.storage_mut::<f32>()[start..end]
}

/// Returns rows and columns.
pub(crate) fn dims2(x: &FlexTensor) -> [usize; 2] {
    x.layout().shape().dims::<2>()
}

/// Returns a `[rows, cols]` tensor around `data`, without a copy.
pub(crate) fn from_rows(data: Vec<f32>, rows: usize, cols: usize) -> FlexTensor {
    debug_assert_eq!(data.len(), rows * cols);
    FlexTensor::from_data(TensorData::new(data, [rows, cols]))
}

/// Returns the CPU's tensor behind `tensor`; `None` if it is on another device, or not of floats.
pub(crate) fn from_tensor(tensor: Tensor<2>) -> Option<FlexTensor> {
    match tensor.into_dispatch().kind {
        DispatchTensorKind::Flex(BackendTensor::Float(tensor)) => Some(tensor),
        _ => None,
    }
}

/// Returns the tensor as a tensor of burn's.
pub(crate) fn into_tensor(tensor: FlexTensor) -> Tensor<2> {
    Tensor::from_dispatch(DispatchTensor {
        kind: DispatchTensorKind::Flex(BackendTensor::Float(tensor)),
        autodiff: Default::default(),
    })
}
