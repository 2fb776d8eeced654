//! Rows over threads; within a row two or three passes, all but the first from L1.

use burn_flex::FlexTensor;

use crate::simd::{Isa, Kernel, PairMap, Simd, map_row, sum_of_squares};
use crate::tensors::{dense, dims2, from_rows, values};
use crate::threads::{SharedMut, make_rows, zeroed};

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
    let (x, residual, weight) = (dense(x), dense(residual), dense(weight));
    let (x, residual, weight) = (values(&x), values(&residual), values(&weight));
    assert_eq!(features, weight.len(), "add_rms_norm: width of x [{rows}, {features}]");
    let (y, sum) = add_normed(Isa::active(), x, residual, weight, eps);
    (from_rows(y, rows, features), from_rows(sum, rows, features))
}

/// Normalises on one instruction set.
pub(super) fn normed(isa: Isa, x: &[f32], weight: &[f32], eps: f32) -> Vec<f32> {
    make_rows(x.len(), weight.len(), |first, y| {
        let x = &x[first * weight.len()..][..y.len()];
        isa.run(NormRows { x, weight, eps, y });
    })
}

/// Normalises sums on one instruction set: what comes of it, and the sums.
pub(super) fn add_normed(
    isa: Isa,
    x: &[f32],
    residual: &[f32],
    weight: &[f32],
    eps: f32,
) -> (Vec<f32>, Vec<f32>) {
    let mut sum = Vec::with_capacity(x.len());
    let shared = SharedMut::new(&mut sum.spare_capacity_mut()[..x.len()]);
    let y = make_rows(x.len(), weight.len(), |first, y| {
        let (start, len) = (first * weight.len(), y.len());
        // SAFETY: pieces of y are disjoint, and this is the same piece of the sums.
        let sum = zeroed(unsafe { shared.slice(start, len) });
        isa.run(AddRows { x: &x[start..][..len], residual: &residual[start..][..len], sum });
        isa.run(NormRows { x: sum, weight, eps, y });
    });
    // SAFETY: the pieces of y are all of it, and each filled its sums.
    unsafe { sum.set_len(x.len()) };
    (y, sum)
}

/// Sums of some rows.
struct AddRows<'a> {
    x: &'a [f32],
    residual: &'a [f32],
    sum: &'a mut [f32],
}

impl Kernel for AddRows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        map_row(s, self.x, self.residual, self.sum, Sum);
    }
}

/// `x + y`
#[derive(Clone, Copy)]
struct Sum;

impl PairMap for Sum {
    #[inline(always)]
    fn map<S: Simd>(self, s: S, x: S::V, y: S::V) -> S::V {
        s.add(x, y)
    }
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
