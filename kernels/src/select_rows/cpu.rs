//! A gather of rows.

use burn_flex::FlexTensor;

use crate::tensors::{dense, dims2, from_rows, values};

/// Rows `rows` of `x`.
pub(crate) fn select_rows(x: FlexTensor, rows: &[u32]) -> FlexTensor {
    let [_, features] = dims2(&x);
    let x = dense(x);
    let x = values(&x);
    let mut y = Vec::with_capacity(rows.len() * features);
    for row in rows {
        let start = *row as usize * features;
        y.extend_from_slice(&x[start..start + features]);
    }
    from_rows(y, rows.len(), features)
}
