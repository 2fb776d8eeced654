//! Plain arrays, which the compiler turns into instructions of the target's baseline.

use super::{FIELD_BASE, LANES, Simd, Task};

/// A type that needs no instructions beyond the target's baseline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Portable;

#[inline(always)]
fn zip(a: [f32; LANES], b: [f32; LANES], f: impl Fn(f32, f32) -> f32) -> [f32; LANES] {
    std::array::from_fn(|i| f(a[i], b[i]))
}

impl Simd for Portable {
    type V = [f32; LANES];
    type Pair = [f32; 2];

    const TILE_VECTORS: usize = 2;

    fn enter<T: Task<Self>>(self, task: T) -> T::Output {
        task.run(self)
    }

    #[inline(always)]
    fn splat(self, x: f32) -> Self::V {
        [x; LANES]
    }

    #[inline(always)]
    fn load(self, src: &[f32; LANES]) -> Self::V {
        *src
    }

    #[inline(always)]
    fn store(self, dst: &mut [f32; LANES], v: Self::V) {
        *dst = v;
    }

    #[inline(always)]
    fn widen(self, src: &[u16; LANES]) -> Self::V {
        src.map(|bits| f32::from_bits(u32::from(bits) << 16))
    }

    #[inline(always)]
    fn widen_int8(self, src: &[i8; LANES]) -> Self::V {
        src.map(f32::from)
    }

    #[inline(always)]
    fn field<const SHIFT: u32>(self, words: &[u8; 4 * LANES], mask: u32) -> Self::V {
        let words = words.as_chunks::<4>().0;
        std::array::from_fn(|l| {
            let field = u32::from_le_bytes(words[l]) >> SHIFT & mask;
            f32::from_bits(FIELD_BASE.to_bits() | field)
        })
    }

    #[inline(always)]
    fn add(self, a: Self::V, b: Self::V) -> Self::V {
        zip(a, b, |a, b| a + b)
    }

    #[inline(always)]
    fn mul(self, a: Self::V, b: Self::V) -> Self::V {
        zip(a, b, |a, b| a * b)
    }

    #[inline(always)]
    fn div(self, a: Self::V, b: Self::V) -> Self::V {
        zip(a, b, |a, b| a / b)
    }

    #[inline(always)]
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        // Two roundings, because a fused multiply-add would be a library call here.
        std::array::from_fn(|i| a[i] * b[i] + c[i])
    }

    #[inline(always)]
    fn max(self, a: Self::V, b: Self::V) -> Self::V {
        zip(a, b, |a, b| if a > b { a } else { b })
    }

    #[inline(always)]
    fn min(self, a: Self::V, b: Self::V) -> Self::V {
        zip(a, b, |a, b| if a < b { a } else { b })
    }

    #[inline(always)]
    fn zero_below(self, v: Self::V, x: Self::V, bound: Self::V) -> Self::V {
        std::array::from_fn(|i| if x[i] < bound[i] { 0.0 } else { v[i] })
    }

    #[inline(always)]
    fn pow2(self, n: Self::V) -> Self::V {
        n.map(|n| f32::from_bits(((n as i32 + 127) as u32) << 23))
    }

    #[inline(always)]
    fn pair(self, first: f32, second: f32) -> Self::Pair {
        [first, second]
    }

    #[inline(always)]
    fn dot_pair(self, acc: Self::V, x: &Self::Pair, w: &[u16; 2 * LANES]) -> Self::V {
        std::array::from_fn(|i| {
            let first = f32::from_bits(u32::from(w[2 * i]) << 16);
            let second = f32::from_bits(u32::from(w[2 * i + 1]) << 16);
            acc[i] + x[0] * first + x[1] * second
        })
    }

    #[inline(always)]
    fn widen_pairs(self, src: &[u16; 2 * LANES]) -> [Self::V; 2] {
        let element = |i: usize| f32::from_bits(u32::from(src[i]) << 16);
        [std::array::from_fn(|i| element(2 * i)), std::array::from_fn(|i| element(2 * i + 1))]
    }
}
