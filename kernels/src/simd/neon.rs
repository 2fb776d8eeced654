//! NEON (part of every aarch64): four registers a vector; bfloat16 weights are widened on the fly.

use std::arch::aarch64::*;

use super::{FIELD_BASE, LANES, Simd, Task};

/// A type that needs no proof, because the target's baseline includes NEON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Neon;

/// Lanes of a register.
const QUARTER: usize = 4;

/// Lanes 0 to 3, 4 to 7, 8 to 11, and 12 to 15.
type Quarters = [float32x4_t; LANES / QUARTER];

/// Applies an intrinsic to all quarters.
macro_rules! each {
    ($intrinsic:ident, $($x:expr),+) => {
        // SAFETY: NEON is part of the target's baseline.
        unsafe {
            [
                $intrinsic($($x[0]),+),
                $intrinsic($($x[1]),+),
                $intrinsic($($x[2]),+),
                $intrinsic($($x[3]),+),
            ]
        }
    };
}

/// Returns `a` where the mask is set, else `b`.
#[inline(always)]
fn choose(mask: [uint32x4_t; 4], a: Quarters, b: Quarters) -> Quarters {
    each!(vbslq_f32, mask, a, b)
}

impl Simd for Neon {
    type V = Quarters;
    type Pair = [f32; 2];

    const TILE_VECTORS: usize = 6;

    #[inline]
    fn enter<T: Task<Self>>(self, task: T) -> T::Output {
        task.run(self)
    }

    #[inline(always)]
    fn splat(self, x: f32) -> Quarters {
        // SAFETY: NEON is part of the target's baseline.
        unsafe { [vdupq_n_f32(x); 4] }
    }

    #[inline(always)]
    fn load(self, src: &[f32; LANES]) -> Quarters {
        let p = src.as_ptr();
        // SAFETY: NEON is part of the target's baseline; `src` is sixteen floats.
        unsafe { [vld1q_f32(p), vld1q_f32(p.add(4)), vld1q_f32(p.add(8)), vld1q_f32(p.add(12))] }
    }

    #[inline(always)]
    fn store(self, dst: &mut [f32; LANES], v: Quarters) {
        let p = dst.as_mut_ptr();
        // SAFETY: NEON is part of the target's baseline; `dst` is sixteen floats.
        unsafe {
            vst1q_f32(p, v[0]);
            vst1q_f32(p.add(4), v[1]);
            vst1q_f32(p.add(8), v[2]);
            vst1q_f32(p.add(12), v[3]);
        }
    }

    #[inline(always)]
    fn widen(self, src: &[u16; LANES]) -> Quarters {
        let p = src.as_ptr();
        // SAFETY: NEON is part of the target's baseline; `src` is sixteen halves.
        unsafe {
            let bits = [vld1_u16(p), vld1_u16(p.add(4)), vld1_u16(p.add(8)), vld1_u16(p.add(12))];
            let wide = each!(vmovl_u16, bits);
            let high = [
                vshlq_n_u32::<16>(wide[0]),
                vshlq_n_u32::<16>(wide[1]),
                vshlq_n_u32::<16>(wide[2]),
                vshlq_n_u32::<16>(wide[3]),
            ];
            each!(vreinterpretq_f32_u32, high)
        }
    }

    #[inline(always)]
    fn field<const SHIFT: u32>(self, words: &[u8; 4 * LANES], mask: u32) -> Quarters {
        let p = words.as_ptr();
        // SAFETY: NEON is part of the target's baseline; `words` is 64 bytes.
        unsafe {
            let shift = vdupq_n_s32(-SHIFT.cast_signed());
            let mask = vdupq_n_u32(mask);
            let base = vdupq_n_u32(FIELD_BASE.to_bits());
            [0, 16, 32, 48].map(|at| {
                let words = vreinterpretq_u32_u8(vld1q_u8(p.add(at)));
                let field = vandq_u32(vshlq_u32(words, shift), mask);
                vreinterpretq_f32_u32(vorrq_u32(field, base))
            })
        }
    }

    #[inline(always)]
    fn add(self, a: Quarters, b: Quarters) -> Quarters {
        each!(vaddq_f32, a, b)
    }

    #[inline(always)]
    fn mul(self, a: Quarters, b: Quarters) -> Quarters {
        each!(vmulq_f32, a, b)
    }

    #[inline(always)]
    fn div(self, a: Quarters, b: Quarters) -> Quarters {
        each!(vdivq_f32, a, b)
    }

    #[inline(always)]
    fn fma(self, a: Quarters, b: Quarters, c: Quarters) -> Quarters {
        each!(vfmaq_f32, c, a, b)
    }

    #[inline(always)]
    fn max(self, a: Quarters, b: Quarters) -> Quarters {
        // `vmaxq` would return NaN where either is NaN.
        choose(each!(vcgtq_f32, a, b), a, b)
    }

    #[inline(always)]
    fn min(self, a: Quarters, b: Quarters) -> Quarters {
        choose(each!(vcltq_f32, a, b), a, b)
    }

    #[inline(always)]
    fn zero_below(self, v: Quarters, x: Quarters, bound: Quarters) -> Quarters {
        choose(each!(vcltq_f32, x, bound), self.splat(0.0), v)
    }

    #[inline(always)]
    fn pow2(self, n: Quarters) -> Quarters {
        // SAFETY: NEON is part of the target's baseline.
        unsafe {
            let bias = [vdupq_n_s32(127); 4];
            let whole = each!(vcvtq_s32_f32, n);
            let biased = each!(vaddq_s32, whole, bias);
            let bits = [
                vshlq_n_s32::<23>(biased[0]),
                vshlq_n_s32::<23>(biased[1]),
                vshlq_n_s32::<23>(biased[2]),
                vshlq_n_s32::<23>(biased[3]),
            ];
            each!(vreinterpretq_f32_s32, bits)
        }
    }

    #[inline(always)]
    fn pair(self, first: f32, second: f32) -> Self::Pair {
        [first, second]
    }

    #[inline(always)]
    fn dot_pair(self, acc: Quarters, x: &Self::Pair, w: &[u16; 2 * LANES]) -> Quarters {
        let [even, odd] = self.widen_pairs(w);
        let acc = self.fma(self.splat(x[0]), even, acc);
        self.fma(self.splat(x[1]), odd, acc)
    }

    #[inline(always)]
    fn widen_pairs(self, src: &[u16; 2 * LANES]) -> [Quarters; 2] {
        let p = src.as_ptr().cast::<u32>();
        // SAFETY: NEON is part of the target's baseline; `src` is 64 bytes, and these loads take
        // any alignment.
        unsafe {
            let upper = vdupq_n_u32(0xFFFF_0000);
            let both =
                [vld1q_u32(p), vld1q_u32(p.add(4)), vld1q_u32(p.add(8)), vld1q_u32(p.add(12))];
            let even = [
                vshlq_n_u32::<16>(both[0]),
                vshlq_n_u32::<16>(both[1]),
                vshlq_n_u32::<16>(both[2]),
                vshlq_n_u32::<16>(both[3]),
            ];
            let odd = each!(vandq_u32, both, [upper; 4]);
            [each!(vreinterpretq_f32_u32, even), each!(vreinterpretq_f32_u32, odd)]
        }
    }
}
