//! The CPU's version: rows divided among threads; in a row, four or five passes, all but one from
//! L1.

use burn_flex::FlexTensor;

use crate::WeightVector;
use crate::rms_norm::cpu::{AddRows, Sum};
use crate::simd::{
    Isa, Kernel, Map, PairMap, Simd, map_in_place, map_onto, map_row, sum_of_row,
    sum_of_squared_deviations,
};
use crate::tensors::{dense, dims2, values, values_mut};
use crate::threads::{SharedMut, for_each_rows};
use crate::workspace::{give_back, tensor};

/// Normalises each row of `x`. Returns the result and `x`.
pub(crate) fn layer_norm(
    x: FlexTensor,
    weight: Option<&WeightVector>,
    bias: Option<&WeightVector>,
    eps: f32,
) -> (FlexTensor, FlexTensor) {
    let [rows, features] = dims2(&x);
    let norm = Norm::new(features, weight, bias, eps);
    let x = dense(x);
    let mut y = tensor(rows, features);
    normed(Isa::active(), values(&x), norm, values_mut(&mut y));
    (y, x)
}

/// Adds, then normalises. Returns the result and the sums.
pub(crate) fn add_layer_norm(
    x: FlexTensor,
    residual: FlexTensor,
    weight: Option<&WeightVector>,
    bias: Option<&WeightVector>,
    eps: f32,
) -> (FlexTensor, FlexTensor) {
    let [rows, features] = dims2(&x);
    assert_eq!([rows, features], dims2(&residual), "add_layer_norm: shapes of x and residual");
    let norm = Norm::new(features, weight, bias, eps);
    let (mut x, residual) = (dense(x), dense(residual));
    let mut y = tensor(rows, features);
    if x.is_unique() {
        let (sum, y_rows) = (values_mut(&mut x), values_mut(&mut y));
        add_onto_normed(Isa::active(), sum, values(&residual), norm, y_rows);
        give_back(residual);
        return (y, x);
    }
    let mut sum = tensor(rows, features);
    let out = [values_mut(&mut y), values_mut(&mut sum)];
    add_normed(Isa::active(), values(&x), values(&residual), norm, out);
    give_back(x);
    give_back(residual);
    (y, sum)
}

/// The numbers that all rows share.
#[derive(Debug, Clone, Copy)]
pub(super) struct Norm<'a> {
    pub(super) features: usize,
    pub(super) weight: Option<&'a [f32]>,
    pub(super) bias: Option<&'a [f32]>,
    pub(super) eps: f32,
}

impl<'a> Norm<'a> {
    fn new(
        features: usize,
        weight: Option<&'a WeightVector>,
        bias: Option<&'a WeightVector>,
        eps: f32,
    ) -> Self {
        super::check(features, weight, bias);
        let [weight, bias] = [weight, bias].map(|vector| vector.map(WeightVector::cpu));
        Self { features, weight, bias, eps }
    }
}

/// Normalises on one instruction set into y.
pub(super) fn normed(isa: Isa, x: &[f32], norm: Norm<'_>, y: &mut [f32]) {
    for_each_rows(y, norm.features, |first, y| {
        let x = &x[first * norm.features..][..y.len()];
        isa.run(NormRows { x, norm, y });
    });
}

/// Normalises sums on one instruction set. Writes the result and the sums.
pub(super) fn add_normed(
    isa: Isa,
    x: &[f32],
    residual: &[f32],
    norm: Norm<'_>,
    [y, sum]: [&mut [f32]; 2],
) {
    let shared = SharedMut::new(sum);
    for_each_rows(y, norm.features, |first, y| {
        let (start, len) = (first * norm.features, y.len());
        // SAFETY: pieces of y are disjoint, and this is the same piece of the sums.
        let sum = unsafe { shared.slice(start, len) };
        isa.run(AddRows { x: &x[start..][..len], residual: &residual[start..][..len], sum });
        isa.run(NormRows { x: sum, norm, y });
    });
}

/// Does the same with sums that take the memory of x, which is in the cache.
pub(super) fn add_onto_normed(
    isa: Isa,
    sum: &mut [f32],
    residual: &[f32],
    norm: Norm<'_>,
    y: &mut [f32],
) {
    let shared = SharedMut::new(sum);
    for_each_rows(y, norm.features, |first, y| {
        let (start, len) = (first * norm.features, y.len());
        // SAFETY: pieces of y are disjoint, and this is the same piece of the sums.
        let sum = unsafe { shared.slice(start, len) };
        isa.run(AddOnto { sum: &mut *sum, residual: &residual[start..][..len] });
        isa.run(NormRows { x: sum, norm, y });
    });
}

/// The task of adding some rows to others.
struct AddOnto<'a> {
    sum: &'a mut [f32],
    residual: &'a [f32],
}

impl Kernel for AddOnto<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        map_onto(s, self.sum, self.residual, Sum);
    }
}

/// The task of normalising some rows.
struct NormRows<'a> {
    x: &'a [f32],
    norm: Norm<'a>,
    y: &'a mut [f32],
}

impl Kernel for NormRows<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Norm { features, weight, bias, eps } = self.norm;
        for (row, out) in self.x.chunks_exact(features).zip(self.y.chunks_exact_mut(features)) {
            let standard = Standard::of(s, row, eps);
            match weight {
                Some(weight) => map_row(s, row, weight, out, standard),
                None => {
                    out.copy_from_slice(row);
                    map_in_place(s, out, standard);
                }
            }
            if let Some(bias) = bias {
                map_onto(s, out, bias, Sum);
            }
        }
    }
}

/// Normalises one row in place.
#[inline(always)]
pub(crate) fn norm_in_place<S: Simd>(
    s: S,
    row: &mut [f32],
    weight: Option<&[f32]>,
    bias: Option<&[f32]>,
    eps: f32,
) {
    let standard = Standard::of(s, row, eps);
    match weight {
        Some(weight) => map_onto(s, row, weight, standard),
        None => map_in_place(s, row, standard),
    }
    if let Some(bias) = bias {
        map_onto(s, row, bias, Sum);
    }
}

/// The map `(x − mean) · scale`, and its product with a weight.
#[derive(Clone, Copy)]
struct Standard {
    mean: f32,
    scale: f32,
}

impl Standard {
    /// Returns the map that gives `row` mean 0 and variance 1.
    #[inline(always)]
    fn of<S: Simd>(s: S, row: &[f32], eps: f32) -> Self {
        let features = row.len() as f32;
        let mean = sum_of_row(s, row) / features;
        let variance = sum_of_squared_deviations(s, row, mean) / features;
        Self { mean, scale: 1.0 / (variance + eps).sqrt() }
    }
}

impl Map for Standard {
    #[inline(always)]
    fn map<S: Simd>(self, s: S, x: S::V) -> S::V {
        s.mul(s.add(x, s.splat(-self.mean)), s.splat(self.scale))
    }
}

impl PairMap for Standard {
    #[inline(always)]
    fn map<S: Simd>(self, s: S, x: S::V, weight: S::V) -> S::V {
        s.mul(Map::map(self, s, x), weight)
    }
}
