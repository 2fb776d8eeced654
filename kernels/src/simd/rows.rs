//! Loops over a row whose length need not be a multiple of the vector's.

use super::{LANES, Simd, sum_of};

/// Returns `Σ x²`, in two vectors of lanes by position in the row, folded at the end.
#[inline(always)]
pub(crate) fn sum_of_squares<S: Simd>(s: S, row: &[f32]) -> f32 {
    let mut sums = [s.splat(0.0); 2];
    let (pairs, rest) = row.as_chunks::<{ 2 * LANES }>();
    for pair in pairs {
        let (vectors, _) = pair.as_chunks::<LANES>();
        for (sum, x) in sums.iter_mut().zip(vectors) {
            let x = s.load(x);
            *sum = s.fma(x, x, *sum);
        }
    }
    let mut padded = [0.0; 2 * LANES];
    padded[..rest.len()].copy_from_slice(rest);
    let (vectors, _) = padded.as_chunks::<LANES>();
    for (sum, x) in sums.iter_mut().zip(vectors) {
        let x = s.load(x);
        *sum = s.fma(x, x, *sum);
    }
    sum_of(s, s.add(sums[0], sums[1]))
}

/// A function of two values, lane by lane.
pub(crate) trait PairMap: Copy {
    /// Returns the function's values. Implementations are `#[inline(always)]`.
    fn map<S: Simd>(self, s: S, a: S::V, b: S::V) -> S::V;
}

/// Writes `out[i] = f(a[i], b[i])` for slices of equal length.
#[inline(always)]
pub(crate) fn map_row<S: Simd>(s: S, a: &[f32], b: &[f32], out: &mut [f32], f: impl PairMap) {
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    let (out, out_rest) = out.as_chunks_mut::<LANES>();
    for ((a, b), out) in a.iter().zip(b).zip(out) {
        s.store(out, f.map(s, s.load(a), s.load(b)));
    }
    if !out_rest.is_empty() {
        let (mut a, mut b, mut y) = ([0.0; LANES], [0.0; LANES], [0.0; LANES]);
        a[..a_rest.len()].copy_from_slice(a_rest);
        b[..b_rest.len()].copy_from_slice(b_rest);
        s.store(&mut y, f.map(s, s.load(&a), s.load(&b)));
        out_rest.copy_from_slice(&y[..out_rest.len()]);
    }
}
