//! The elements of a KV cache's arena: one trait for all formats. The code that writes or reads the
//! arena uses it.

use crate::simd::{Element, LANES, Simd};

/// An element of a key or a value.
pub(crate) trait KvElement: bytemuck::Pod + Send + Sync {
    /// Number of neighbouring dimensions of a key that one step of a dot product takes.
    const INPUTS: usize;
    /// Number of elements that a token's scale takes up, or 0 if the format has no scales.
    const SCALE: usize;
    /// The memory that one step loads: [`Self::INPUTS`] dimensions of [`LANES`] keys, side by side.
    type Group: Copy + Send + Sync;
    /// The dimensions of a query in one step, ready to be broadcast.
    type Step<S: Simd>: bytemuck::Pod + Send + Sync;

    /// Returns `keys` as groups.
    fn groups(keys: &[Self]) -> &[Self::Group];
    /// Fills `steps` with the query's dimensions, [`Self::INPUTS`] a step.
    fn steps<S: Simd>(s: S, query: &[f32], steps: &mut [Self::Step<S>]);
    /// Returns `acc + Σ x · k` for each key, without scales.
    fn fma<S: Simd>(s: S, acc: S::V, x: &Self::Step<S>, keys: &Self::Group) -> S::V;
    /// Returns [`LANES`] elements from `LANES · n` on as f32, without scales.
    fn widen_at<S: Simd>(s: S, src: &[Self], n: usize) -> S::V;
    /// Returns dimension `i` of a step, below [`Self::INPUTS`], of each key, without scales.
    fn widen_dim<S: Simd>(s: S, keys: &Self::Group, i: usize) -> S::V;

    /// Returns the coding for the key or value `row` of one head.
    fn coding(row: &[f32]) -> Coding;
    /// Returns `x`, a number of the row with this coding, as an element.
    fn encode(x: f32, coding: Coding) -> Self;
}

/// The factors between a row and its elements.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Coding {
    /// The factor from an element to its value.
    pub(crate) scale: f32,
    /// `1 / scale`, or 0 if the row is stored as zeros.
    inverse: f32,
}

impl Coding {
    const PLAIN: Self = Self { scale: 1.0, inverse: 1.0 };
}

/// Implements [`KvElement`] for a format that weights have, too. It has no scales.
macro_rules! without_scale {
    ($element:ty) => {
        impl KvElement for $element {
            const INPUTS: usize = <Self as Element>::INPUTS;
            const SCALE: usize = 0;
            type Group = <Self as Element>::Group;
            type Step<S: Simd> = <Self as Element>::Step<S>;

            #[inline(always)]
            fn groups(keys: &[Self]) -> &[Self::Group] {
                <Self as Element>::groups(keys)
            }

            #[inline(always)]
            fn steps<S: Simd>(s: S, query: &[f32], steps: &mut [Self::Step<S>]) {
                <Self as Element>::steps(s, query, steps);
            }

            #[inline(always)]
            fn fma<S: Simd>(s: S, acc: S::V, x: &Self::Step<S>, keys: &Self::Group) -> S::V {
                <Self as Element>::fma(s, acc, x, keys)
            }

            #[inline(always)]
            fn widen_at<S: Simd>(s: S, src: &[Self], n: usize) -> S::V {
                <Self as Element>::widen_at(s, src, n)
            }

            #[inline(always)]
            fn widen_dim<S: Simd>(s: S, keys: &Self::Group, i: usize) -> S::V {
                <Self as Element>::widen_dim(s, keys, i)
            }

            #[inline(always)]
            fn coding(_: &[f32]) -> Coding {
                Coding::PLAIN
            }

            #[inline(always)]
            fn encode(x: f32, _: Coding) -> Self {
                <Self as Element>::from_f32(x)
            }
        }
    };
}

without_scale!(f32);
without_scale!(u16);

/// The largest code. Codes go from −127 to 127.
const LARGEST_CODE: f32 = 127.0;

/// Rows whose largest element is below this are stored as zeros: 1 / scale would not fit an f32.
const SMALLEST: f32 = 128.0 * f32::MIN_POSITIVE;

/// 1.5 · 2²³: adding and subtracting it rounds to a whole number, ties to even.
const ROUND: f32 = 12_582_912.0;

impl KvElement for i8 {
    const INPUTS: usize = 1;
    const SCALE: usize = size_of::<f32>();
    type Group = [i8; LANES];
    type Step<S: Simd> = f32;

    #[inline(always)]
    fn groups(keys: &[Self]) -> &[Self::Group] {
        keys.as_chunks().0
    }

    #[inline(always)]
    fn steps<S: Simd>(_: S, query: &[f32], steps: &mut [f32]) {
        steps.copy_from_slice(query);
    }

    #[inline(always)]
    fn fma<S: Simd>(s: S, acc: S::V, x: &f32, keys: &Self::Group) -> S::V {
        s.fma(s.splat(*x), s.widen_int8(keys), acc)
    }

    #[inline(always)]
    fn widen_at<S: Simd>(s: S, src: &[i8], n: usize) -> S::V {
        s.widen_int8(&src.as_chunks().0[n])
    }

    #[inline(always)]
    fn widen_dim<S: Simd>(s: S, keys: &Self::Group, _: usize) -> S::V {
        s.widen_int8(keys)
    }

    /// A row with an infinity or a NaN gets a non-finite scale, so every reader sees the fault.
    #[inline(always)]
    fn coding(row: &[f32]) -> Coding {
        // The bits of magnitudes, read as integers, have the order of the magnitudes. NaN is the
        // largest.
        let magnitude = |x: &f32| x.to_bits() & (u32::MAX >> 1);
        let largest = f32::from_bits(row.iter().map(magnitude).fold(0, u32::max));
        if largest < SMALLEST {
            return Coding { scale: 0.0, inverse: 0.0 };
        }
        Coding { scale: largest / LARGEST_CODE, inverse: LARGEST_CODE / largest }
    }

    #[inline(always)]
    fn encode(x: f32, coding: Coding) -> i8 {
        (x * coding.inverse + ROUND - ROUND) as i8
    }
}
