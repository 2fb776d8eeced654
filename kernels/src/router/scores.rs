//! The functions from logits to scores, on rows of whole vectors.

use crate::simd::{LANES, Simd, exp, max_of, sum_of};

/// Replaces a row by its softmax. Lanes that hold −∞ become 0.
#[inline(always)]
pub(super) fn softmax<S: Simd>(s: S, row: &mut [f32]) {
    let vectors = row.as_chunks_mut::<LANES>().0;
    let mut largest = s.splat(f32::NEG_INFINITY);
    for x in vectors.iter() {
        largest = s.max(largest, s.load(x));
    }
    let lower = s.splat(-max_of(s, largest));
    let mut sum = s.splat(0.0);
    for x in vectors.iter_mut() {
        let e = exp(s, s.add(s.load(x), lower));
        sum = s.add(sum, e);
        s.store(x, e);
    }
    let sum = s.splat(sum_of(s, sum));
    for x in vectors {
        s.store(x, s.div(s.load(x), sum));
    }
}

/// Replaces each element by its logistic function.
#[inline(always)]
pub(super) fn sigmoid<S: Simd>(s: S, row: &mut [f32]) {
    let one = s.splat(1.0);
    for x in row.as_chunks_mut::<LANES>().0 {
        let e = exp(s, s.mul(s.load(x), s.splat(-1.0)));
        s.store(x, s.div(one, s.add(one, e)));
    }
}
