//! Loops over a row whose length need not be a multiple of the vector's.

use super::{LANES, Simd, sum_of};

/// Returns `Σ x²`, in two vectors of lanes by position in the row, folded at the end.
#[inline(always)]
pub(crate) fn sum_of_squares<S: Simd>(s: S, row: &[f32]) -> f32 {
    fold_row(s, row, 0.0, Square)
}

/// Returns `Σ x`, in the lanes of [`sum_of_squares`].
#[inline(always)]
pub(crate) fn sum_of_row<S: Simd>(s: S, row: &[f32]) -> f32 {
    fold_row(s, row, 0.0, Plain)
}

/// Returns `Σ (x − mean)²`, in the lanes of [`sum_of_squares`].
#[inline(always)]
pub(crate) fn sum_of_squared_deviations<S: Simd>(s: S, row: &[f32], mean: f32) -> f32 {
    fold_row(s, row, mean, Deviation(mean))
}

/// A step of a sum. Implementations are `#[inline(always)]`.
trait Addend: Copy {
    /// Returns the sum with the addend that belongs to x.
    fn add<S: Simd>(self, s: S, sum: S::V, x: S::V) -> S::V;
}

/// The addend `x²`.
#[derive(Clone, Copy)]
struct Square;

impl Addend for Square {
    #[inline(always)]
    fn add<S: Simd>(self, s: S, sum: S::V, x: S::V) -> S::V {
        s.fma(x, x, sum)
    }
}

/// The addend `x`.
#[derive(Clone, Copy)]
struct Plain;

impl Addend for Plain {
    #[inline(always)]
    fn add<S: Simd>(self, s: S, sum: S::V, x: S::V) -> S::V {
        s.add(sum, x)
    }
}

/// The addend `(x − mean)²`.
#[derive(Clone, Copy)]
struct Deviation(f32);

impl Addend for Deviation {
    #[inline(always)]
    fn add<S: Simd>(self, s: S, sum: S::V, x: S::V) -> S::V {
        let deviation = s.add(x, s.splat(-self.0));
        s.fma(deviation, deviation, sum)
    }
}

/// Adds a row in two vectors of lanes by position in the row, and folds them at the end. `filler`
/// stands for the elements that the last vectors lack, and has the addend 0.
#[inline(always)]
fn fold_row<S: Simd>(s: S, row: &[f32], filler: f32, addend: impl Addend) -> f32 {
    let mut sums = [s.splat(0.0); 2];
    let (pairs, rest) = row.as_chunks::<{ 2 * LANES }>();
    for pair in pairs {
        let (vectors, _) = pair.as_chunks::<LANES>();
        for (sum, x) in sums.iter_mut().zip(vectors) {
            *sum = addend.add(s, *sum, s.load(x));
        }
    }
    let mut padded = [filler; 2 * LANES];
    padded[..rest.len()].copy_from_slice(rest);
    let (vectors, _) = padded.as_chunks::<LANES>();
    for (sum, x) in sums.iter_mut().zip(vectors) {
        *sum = addend.add(s, *sum, s.load(x));
    }
    sum_of(s, s.add(sums[0], sums[1]))
}

/// A function of one value, lane by lane.
pub(crate) trait Map: Copy + Send + Sync {
    /// Returns the function's values. Implementations are `#[inline(always)]`.
    fn map<S: Simd>(self, s: S, x: S::V) -> S::V;
}

/// Writes `x[i] = f(x[i])`.
#[inline(always)]
pub(crate) fn map_in_place<S: Simd>(s: S, x: &mut [f32], f: impl Map) {
    let (vectors, rest) = x.as_chunks_mut::<LANES>();
    for x in vectors {
        s.store(x, f.map(s, s.load(x)));
    }
    if !rest.is_empty() {
        let mut x = [0.0; LANES];
        x[..rest.len()].copy_from_slice(rest);
        let y = f.map(s, s.load(&x));
        s.store(&mut x, y);
        rest.copy_from_slice(&x[..rest.len()]);
    }
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

/// Writes `a[i] = f(a[i], b[i])` for slices of equal length.
#[inline(always)]
pub(crate) fn map_onto<S: Simd>(s: S, a: &mut [f32], b: &[f32], f: impl PairMap) {
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks_mut::<LANES>(), b.as_chunks::<LANES>());
    for (a, b) in a.iter_mut().zip(b) {
        s.store(a, f.map(s, s.load(a), s.load(b)));
    }
    if !a_rest.is_empty() {
        let (mut a, mut b) = ([0.0; LANES], [0.0; LANES]);
        a[..a_rest.len()].copy_from_slice(a_rest);
        b[..b_rest.len()].copy_from_slice(b_rest);
        let y = f.map(s, s.load(&a), s.load(&b));
        s.store(&mut a, y);
        a_rest.copy_from_slice(&a[..a_rest.len()]);
    }
}
