//! The CPU's version: rows divided among threads; in a row, two or three passes, all but the first
//! from L1.

use burn_flex::FlexTensor;

use crate::WeightVector;
use crate::simd::{
    Isa, Kernel, Map, PairMap, Simd, map_in_place, map_onto, map_row, sum_of_squares,
};
use crate::tensors::{dense, dims2, values, values_mut};
use crate::threads::{SharedMut, for_each_rows};
use crate::workspace::{give_back, tensor};

/// Normalises each row of `x`. Returns the result and `x`.
pub(crate) fn rms_norm(x: FlexTensor, weight: &WeightVector, eps: f32) -> (FlexTensor, FlexTensor) {
    let [rows, features] = dims2(&x);
    let weight = weight.cpu();
    assert_eq!(features, weight.len(), "rms_norm: width of x [{rows}, {features}]");
    let x = dense(x);
    let mut y = tensor(rows, features);
    normed(Isa::active(), values(&x), weight, eps, values_mut(&mut y));
    (y, x)
}

/// Adds, then normalises. Returns the result and the sums.
pub(crate) fn add_rms_norm(
    x: FlexTensor,
    residual: FlexTensor,
    weight: &WeightVector,
    eps: f32,
) -> (FlexTensor, FlexTensor) {
    let [rows, features] = dims2(&x);
    assert_eq!([rows, features], dims2(&residual), "add_rms_norm: shapes of x and residual");
    let weight = weight.cpu();
    assert_eq!(features, weight.len(), "add_rms_norm: width of x [{rows}, {features}]");
    let (x, residual) = (dense(x), dense(residual));
    let (mut y, mut sum) = (tensor(rows, features), tensor(rows, features));
    let out = [values_mut(&mut y), values_mut(&mut sum)];
    add_normed(Isa::active(), values(&x), values(&residual), weight, eps, out);
    give_back(x);
    give_back(residual);
    (y, sum)
}

/// Normalises on one instruction set into y.
pub(super) fn normed(isa: Isa, x: &[f32], weight: &[f32], eps: f32, y: &mut [f32]) {
    for_each_rows(y, weight.len(), |first, y| {
        let x = &x[first * weight.len()..][..y.len()];
        isa.run(NormRows { x, weight, eps, y });
    });
}

/// Normalises sums on one instruction set. Writes the result and the sums.
pub(super) fn add_normed(
    isa: Isa,
    x: &[f32],
    residual: &[f32],
    weight: &[f32],
    eps: f32,
    [y, sum]: [&mut [f32]; 2],
) {
    let shared = SharedMut::new(sum);
    for_each_rows(y, weight.len(), |first, y| {
        let (start, len) = (first * weight.len(), y.len());
        // SAFETY: pieces of y are disjoint, and this is the same piece of the sums.
        let sum = unsafe { shared.slice(start, len) };
        isa.run(AddRows { x: &x[start..][..len], residual: &residual[start..][..len], sum });
        isa.run(NormRows { x: sum, weight, eps, y });
    });
}

/// The task of adding some rows.
pub(crate) struct AddRows<'a> {
    pub(crate) x: &'a [f32],
    pub(crate) residual: &'a [f32],
    pub(crate) sum: &'a mut [f32],
}

impl Kernel for AddRows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        map_row(s, self.x, self.residual, self.sum, Sum);
    }
}

/// The map `x + y`.
#[derive(Clone, Copy)]
pub(crate) struct Sum;

impl PairMap for Sum {
    #[inline(always)]
    fn map<S: Simd>(self, s: S, x: S::V, y: S::V) -> S::V {
        s.add(x, y)
    }
}

/// The task of normalising some rows.
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
            map_row(s, row, self.weight, out, Scale::of(s, row, self.eps));
        }
    }
}

/// Normalises one row in place. A missing weight is 1.
#[inline(always)]
pub(crate) fn norm_in_place<S: Simd>(s: S, row: &mut [f32], weight: Option<&[f32]>, eps: f32) {
    let scale = Scale::of(s, row, eps);
    match weight {
        Some(weight) => map_onto(s, row, weight, scale),
        None => map_in_place(s, row, scale),
    }
}

/// The map `x · scale`, and its product with a weight.
#[derive(Clone, Copy)]
struct Scale(f32);

impl Scale {
    /// Returns the scale of a row.
    #[inline(always)]
    fn of<S: Simd>(s: S, row: &[f32], eps: f32) -> Self {
        let mean = sum_of_squares(s, row) / row.len() as f32;
        Self(1.0 / (mean + eps).sqrt())
    }
}

impl Map for Scale {
    #[inline(always)]
    fn map<S: Simd>(self, s: S, x: S::V) -> S::V {
        s.mul(x, s.splat(self.0))
    }
}

impl PairMap for Scale {
    #[inline(always)]
    fn map<S: Simd>(self, s: S, x: S::V, weight: S::V) -> S::V {
        s.mul(Map::map(self, s, x), weight)
    }
}
