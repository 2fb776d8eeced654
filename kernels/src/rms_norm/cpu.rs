//! Rows over threads; within a row two passes, the second from L1.

use burn_flex::FlexTensor;

use crate::tensors::{dense, dims2, from_rows, values};

/// Normalises each row of `x`.
pub(crate) fn rms_norm(x: FlexTensor, weight: FlexTensor, eps: f32) -> FlexTensor {
    let [rows, features] = dims2(&x);
    let (x, weight) = (dense(x), dense(weight));
    let (x, weight) = (values(&x), values(&weight));
    assert_eq!(features, weight.len(), "rms_norm: x is [{rows}, {features}]");
    let mut y = vec![0.0; x.len()];
    for (row, out) in x.chunks_exact(features).zip(y.chunks_exact_mut(features)) {
        norm_row(row, weight, eps, out);
    }
    from_rows(y, rows, features)
}

/// Adds, then normalises.
pub(crate) fn add_rms_norm(
    x: FlexTensor,
    residual: FlexTensor,
    weight: FlexTensor,
    eps: f32,
) -> (FlexTensor, FlexTensor) {
    let [rows, features] = dims2(&x);
    assert_eq!([rows, features], dims2(&residual), "add_rms_norm: x and residual");
    let (x, residual) = (dense(x), dense(residual));
    let sum = values(&x).iter().zip(values(&residual)).map(|(a, b)| a + b).collect();
    let sum = from_rows(sum, rows, features);
    (rms_norm(sum.clone(), weight, eps), sum)
}

fn norm_row(row: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    let sum: f32 = row.iter().map(|v| v * v).sum();
    let scale = 1.0 / (sum / row.len() as f32 + eps).sqrt();
    for ((o, v), w) in out.iter_mut().zip(row).zip(weight) {
        *o = v * scale * w;
    }
}
