//! AVX2 with FMA: two registers a vector; bfloat16 weights are widened on the fly.

use std::arch::x86_64::*;

use super::{FIELD_BASE, LANES, Simd, Task};

/// Proof that the processor has AVX2 and FMA.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Avx2(());

impl Avx2 {
    pub(super) fn detect() -> Option<Self> {
        (is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")).then_some(Self(()))
    }
}

/// Lanes 0 to 7, and 8 to 15.
type Halves = [__m256; 2];

/// Applies an intrinsic to both halves.
macro_rules! both {
    ($intrinsic:ident, $($x:expr),+) => {
        // SAFETY: `self` of the caller proves the feature.
        unsafe { [$intrinsic($($x[0]),+), $intrinsic($($x[1]),+)] }
    };
}

impl Simd for Avx2 {
    type V = Halves;
    type Pair = [f32; 2];

    const TILE_VECTORS: usize = 6;

    #[inline]
    fn enter<T: Task<Self>>(self, task: T) -> T::Output {
        #[target_feature(enable = "avx2,fma")]
        fn compiled<T: Task<Avx2>>(simd: Avx2, task: T) -> T::Output {
            task.run(simd)
        }
        // SAFETY: `self` exists, so the features were detected.
        unsafe { compiled(self, task) }
    }

    #[inline(always)]
    fn splat(self, x: f32) -> Halves {
        // SAFETY: `self` proves the feature.
        unsafe { [_mm256_set1_ps(x); 2] }
    }

    #[inline(always)]
    fn load(self, src: &[f32; LANES]) -> Halves {
        // SAFETY: `self` proves the feature; `src` is sixteen floats, and the loads are unaligned.
        unsafe { [_mm256_loadu_ps(src.as_ptr()), _mm256_loadu_ps(src.as_ptr().add(8))] }
    }

    #[inline(always)]
    fn store(self, dst: &mut [f32; LANES], v: Halves) {
        // SAFETY: `self` proves the feature; `dst` is sixteen floats, and the stores are unaligned.
        unsafe {
            _mm256_storeu_ps(dst.as_mut_ptr(), v[0]);
            _mm256_storeu_ps(dst.as_mut_ptr().add(8), v[1]);
        }
    }

    #[inline(always)]
    fn widen(self, src: &[u16; LANES]) -> Halves {
        // SAFETY: `self` proves the feature; `src` is 32 bytes, and the loads are unaligned.
        unsafe {
            let low = _mm256_cvtepu16_epi32(_mm_loadu_si128(src.as_ptr().cast()));
            let high = _mm256_cvtepu16_epi32(_mm_loadu_si128(src.as_ptr().add(8).cast()));
            [
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(low)),
                _mm256_castsi256_ps(_mm256_slli_epi32::<16>(high)),
            ]
        }
    }

    #[inline(always)]
    fn widen_int8(self, src: &[i8; LANES]) -> Halves {
        // SAFETY: `self` proves the feature; `src` is 16 bytes, and the load is unaligned.
        unsafe {
            let bytes = _mm_loadu_si128(src.as_ptr().cast());
            [
                _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
                _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_unpackhi_epi64(bytes, bytes))),
            ]
        }
    }

    #[inline(always)]
    fn field<const SHIFT: u32>(self, words: &[u8; 4 * LANES], mask: u32) -> Halves {
        // SAFETY: `self` proves the feature; `words` is 64 bytes, and the loads are unaligned.
        unsafe {
            let src = words.as_ptr().cast::<__m256i>();
            let mask = _mm256_set1_epi32(mask.cast_signed());
            let base = _mm256_castps_si256(_mm256_set1_ps(FIELD_BASE));
            let shift = _mm_cvtsi32_si128(SHIFT.cast_signed());
            let low = _mm256_srl_epi32(_mm256_loadu_si256(src), shift);
            let high = _mm256_srl_epi32(_mm256_loadu_si256(src.add(1)), shift);
            [
                _mm256_castsi256_ps(_mm256_or_si256(_mm256_and_si256(low, mask), base)),
                _mm256_castsi256_ps(_mm256_or_si256(_mm256_and_si256(high, mask), base)),
            ]
        }
    }

    #[inline(always)]
    fn add(self, a: Halves, b: Halves) -> Halves {
        both!(_mm256_add_ps, a, b)
    }

    #[inline(always)]
    fn mul(self, a: Halves, b: Halves) -> Halves {
        both!(_mm256_mul_ps, a, b)
    }

    #[inline(always)]
    fn div(self, a: Halves, b: Halves) -> Halves {
        both!(_mm256_div_ps, a, b)
    }

    #[inline(always)]
    fn fma(self, a: Halves, b: Halves, c: Halves) -> Halves {
        both!(_mm256_fmadd_ps, a, b, c)
    }

    #[inline(always)]
    fn max(self, a: Halves, b: Halves) -> Halves {
        both!(_mm256_max_ps, a, b)
    }

    #[inline(always)]
    fn min(self, a: Halves, b: Halves) -> Halves {
        both!(_mm256_min_ps, a, b)
    }

    #[inline(always)]
    fn zero_below(self, v: Halves, x: Halves, bound: Halves) -> Halves {
        // SAFETY: `self` proves the feature.
        unsafe {
            [
                _mm256_and_ps(v[0], _mm256_cmp_ps::<_CMP_NLT_UQ>(x[0], bound[0])),
                _mm256_and_ps(v[1], _mm256_cmp_ps::<_CMP_NLT_UQ>(x[1], bound[1])),
            ]
        }
    }

    #[inline(always)]
    fn pow2(self, n: Halves) -> Halves {
        // SAFETY: `self` proves the feature.
        unsafe {
            let bias = _mm256_set1_epi32(127);
            let low = _mm256_add_epi32(_mm256_cvtps_epi32(n[0]), bias);
            let high = _mm256_add_epi32(_mm256_cvtps_epi32(n[1]), bias);
            [
                _mm256_castsi256_ps(_mm256_slli_epi32::<23>(low)),
                _mm256_castsi256_ps(_mm256_slli_epi32::<23>(high)),
            ]
        }
    }

    #[inline(always)]
    fn pair(self, first: f32, second: f32) -> Self::Pair {
        [first, second]
    }

    #[inline(always)]
    fn dot_pair(self, acc: Halves, x: &Self::Pair, w: &[u16; 2 * LANES]) -> Halves {
        // SAFETY: `self` proves the feature; `w` is 64 bytes, and the loads are unaligned.
        unsafe {
            let upper = _mm256_set1_epi32(0xFFFF_0000_u32 as i32);
            let low = _mm256_loadu_si256(w.as_ptr().cast());
            let high = _mm256_loadu_si256(w.as_ptr().add(LANES).cast());
            let (x0, x1) = (_mm256_set1_ps(x[0]), _mm256_set1_ps(x[1]));
            let step = |acc, both| {
                let first = _mm256_castsi256_ps(_mm256_slli_epi32::<16>(both));
                let second = _mm256_castsi256_ps(_mm256_and_si256(both, upper));
                _mm256_fmadd_ps(x1, second, _mm256_fmadd_ps(x0, first, acc))
            };
            [step(acc[0], low), step(acc[1], high)]
        }
    }

    #[inline(always)]
    fn widen_pairs(self, src: &[u16; 2 * LANES]) -> [Halves; 2] {
        // SAFETY: `self` proves the feature; `src` is 64 bytes, and the loads are unaligned.
        unsafe {
            let upper = _mm256_set1_epi32(0xFFFF_0000_u32 as i32);
            let low = _mm256_loadu_si256(src.as_ptr().cast());
            let high = _mm256_loadu_si256(src.as_ptr().add(LANES).cast());
            let even = [_mm256_slli_epi32::<16>(low), _mm256_slli_epi32::<16>(high)];
            let odd = [_mm256_and_si256(low, upper), _mm256_and_si256(high, upper)];
            [
                [_mm256_castsi256_ps(even[0]), _mm256_castsi256_ps(even[1])],
                [_mm256_castsi256_ps(odd[0]), _mm256_castsi256_ps(odd[1])],
            ]
        }
    }
}
