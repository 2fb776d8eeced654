//! Rows over threads; within a row two passes, the second from L1.

use burn_flex::FlexTensor;

use crate::simd::{Isa, Kernel, PairMap, Simd, map_row, sum_of_squares};
use crate::tensors::{dense, dims2, from_rows, values};
use crate::threads::for_each_rows;

/// Normalises each row of `x`.
pub(crate) fn rms_norm(x: FlexTensor, weight: FlexTensor, eps: f32) -> FlexTensor {
    let [rows, features] = dims2(&x);
    let (x, weight) = (dense(x), dense(weight));
    let (x, weight) = (values(&x), values(&weight));
    assert_eq!(features, weight.len(), "rms_norm: width of x [{rows}, {features}]");
    from_rows(normed(Isa::active(), x, weight, eps), rows, features)
}

/// Adds, then normalises.
pub(crate) fn add_rms_norm(
    x: FlexTensor,
    residual: FlexTensor,
    weight: FlexTensor,
    eps: f32,
) -> (FlexTensor, FlexTensor) {
    let [rows, features] = dims2(&x);
    assert_eq!([rows, features], dims2(&residual), "add_rms_norm: shapes of x and residual");
    let (x, residual) = (dense(x), dense(residual));
    let sum = sums(values(&x), values(&residual), features);
    let sum = from_rows(sum, rows, features);
    (rms_norm(sum.clone(), weight, eps), sum)
}

/// `a + b`
fn sums(a: &[f32], b: &[f32], width: usize) -> Vec<f32> {
    let mut sum = vec![0.0; a.len()];
    for_each_rows(&mut sum, width, |first, piece| {
        let start = first * width;
        for ((sum, a), b) in piece.iter_mut().zip(&a[start..]).zip(&b[start..]) {
            *sum = a + b;
        }
    });
    sum
}

/// Normalises on one instruction set.
pub(super) fn normed(isa: Isa, x: &[f32], weight: &[f32], eps: f32) -> Vec<f32> {
    let mut y = vec![0.0; x.len()];
    for_each_rows(&mut y, weight.len(), |first, piece| {
        let x = &x[first * weight.len()..][..piece.len()];
        isa.run(NormRows { x, weight, eps, y: piece });
    });
    y
}

/// Some rows.
struct NormRows<'a> {
    x: &'a [f32],
    weight: &'a [f32],
    eps: f32,
    y: &'a mut [f32],
}

impl Kernel for NormRows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let features = self.weight.len();
        for (row, out) in self.x.chunks_exact(features).zip(self.y.chunks_exact_mut(features)) {
            let mean = sum_of_squares(s, row) / features as f32;
            let scale = 1.0 / (mean + self.eps).sqrt();
            map_row(s, row, self.weight, out, Scale(scale));
        }
    }
}

/// `x · scale · weight`
#[derive(Clone, Copy)]
struct Scale(f32);

impl PairMap for Scale {
    #[inline(always)]
    fn map<S: Simd>(self, s: S, x: S::V, weight: S::V) -> S::V {
        s.mul(s.mul(x, s.splat(self.0)), weight)
    }
}
