//! A gather of rows.

use burn_flex::FlexTensor;

use crate::tensors::{dense, dims2, values, values_mut};
use crate::workspace::{give_back, tensor};

/// Returns rows `rows` of `x`.
pub(crate) fn select_rows(x: FlexTensor, rows: &[u32]) -> FlexTensor {
    let [_, features] = dims2(&x);
    let x = dense(x);
    let mut y = tensor(rows.len(), features);
    for (row, y) in rows.iter().zip(values_mut(&mut y).chunks_exact_mut(features)) {
        y.copy_from_slice(&values(&x)[*row as usize * features..][..features]);
    }
    give_back(x);
    y
}
