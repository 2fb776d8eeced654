//! The two formats of stored elements, as one operand of a sum of products.

use super::{LANES, Simd};

/// A stored format: f32, or bfloat16 as bits.
pub(crate) trait Element: bytemuck::Pod + Send + Sync {
    /// Neighbouring inputs that one step of a sum takes together.
    const INPUTS: usize;
    /// The memory that one step loads: [`LANES`] lanes of `INPUTS` elements side by side.
    type Group: Copy + Send + Sync;
    /// The activations of one step, ready to be broadcast.
    type Step<S: Simd>: bytemuck::Pod + Send + Sync;

    /// Converts a value.
    fn from_f32(x: f32) -> Self;
    /// Cuts a slice into groups. The slice must hold a whole number of them.
    fn groups(data: &[Self]) -> &[Self::Group];
    /// Writes a row of activations, a whole number of steps, to `steps`.
    fn steps<S: Simd>(s: S, row: &[f32], steps: &mut [Self::Step<S>]);
    /// Returns `acc + Σ x · w`, lane by lane.
    fn fma<S: Simd>(s: S, acc: S::V, x: &Self::Step<S>, w: &Self::Group) -> S::V;
    /// Returns the elements from `LANES · n` on as f32.
    fn widen_at<S: Simd>(s: S, src: &[Self], n: usize) -> S::V;
    /// Returns element `i` of each lane of a group, below `INPUTS`, as f32.
    fn widen_dim<S: Simd>(s: S, group: &Self::Group, i: usize) -> S::V;
}

impl Element for f32 {
    const INPUTS: usize = 1;
    type Group = [f32; LANES];
    type Step<S: Simd> = f32;

    #[inline(always)]
    fn from_f32(x: f32) -> Self {
        x
    }

    #[inline(always)]
    fn groups(data: &[Self]) -> &[Self::Group] {
        data.as_chunks().0
    }

    #[inline(always)]
    fn steps<S: Simd>(_: S, row: &[f32], steps: &mut [f32]) {
        steps.copy_from_slice(row);
    }

    #[inline(always)]
    fn fma<S: Simd>(s: S, acc: S::V, x: &f32, w: &Self::Group) -> S::V {
        s.fma(s.splat(*x), s.load(w), acc)
    }

    #[inline(always)]
    fn widen_at<S: Simd>(s: S, src: &[f32], n: usize) -> S::V {
        s.load(&src.as_chunks().0[n])
    }

    #[inline(always)]
    fn widen_dim<S: Simd>(s: S, group: &Self::Group, _: usize) -> S::V {
        s.load(group)
    }
}

impl Element for u16 {
    const INPUTS: usize = 2;
    type Group = [u16; 2 * LANES];
    type Step<S: Simd> = S::Pair;

    #[inline(always)]
    fn from_f32(x: f32) -> Self {
        bf16_bits(x)
    }

    #[inline(always)]
    fn groups(data: &[Self]) -> &[Self::Group] {
        data.as_chunks().0
    }

    #[inline(always)]
    fn steps<S: Simd>(s: S, row: &[f32], steps: &mut [S::Pair]) {
        for (step, [first, second]) in steps.iter_mut().zip(row.as_chunks().0) {
            *step = s.pair(*first, *second);
        }
    }

    #[inline(always)]
    fn fma<S: Simd>(s: S, acc: S::V, x: &S::Pair, w: &Self::Group) -> S::V {
        s.dot_pair(acc, x, w)
    }

    #[inline(always)]
    fn widen_at<S: Simd>(s: S, src: &[u16], n: usize) -> S::V {
        s.widen(&src.as_chunks().0[n])
    }

    #[inline(always)]
    fn widen_dim<S: Simd>(s: S, group: &Self::Group, i: usize) -> S::V {
        s.widen_pairs(group)[i]
    }
}

/// Returns the nearest bfloat16, ties to even; NaN stays NaN. It has no branches, so that loops
/// vectorise.
#[inline(always)]
pub(crate) fn bf16_bits(x: f32) -> u16 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7FFF + (bits >> 16 & 1)) >> 16;
    let quiet = bits >> 16 | 0x40;
    (if x.is_nan() { quiet } else { rounded }) as u16
}
