//! Between burn's CPU tensors and plain slices.

use burn::tensor::TensorData;
use burn_flex::FlexTensor;

/// `x` with its elements in row-major order, copied only where they are not.
pub(crate) fn dense(x: FlexTensor) -> FlexTensor {
    if x.layout().contiguous_offsets().is_some() { x } else { x.to_contiguous() }
}

/// The elements of a tensor that went through [`dense`].
pub(crate) fn values(x: &FlexTensor) -> &[f32] {
    x.as_slice::<f32>().unwrap_or_else(|| unreachable!("a dense f32 tensor is needed"))
}

/// Rows and columns.
pub(crate) fn dims2(x: &FlexTensor) -> [usize; 2] {
    x.layout().shape().dims::<2>()
}

/// A `[rows, cols]` tensor around `data`, without a copy.
pub(crate) fn from_rows(data: Vec<f32>, rows: usize, cols: usize) -> FlexTensor {
    debug_assert_eq!(data.len(), rows * cols);
    FlexTensor::from_data(TensorData::new(data, [rows, cols]))
}
