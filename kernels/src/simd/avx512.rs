//! AVX-512 (F, BW, DQ, VL): one register a vector; bfloat16 weights are widened on the fly.

use std::arch::x86_64::*;

use super::{FIELD_BASE, LANES, Simd, Task};

/// Proof that the processor has AVX-512 F, BW, DQ and VL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Avx512(());

impl Avx512 {
    pub(super) fn detect() -> Option<Self> {
        (is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("fma"))
        .then_some(Self(()))
    }
}

impl Simd for Avx512 {
    type V = __m512;
    type Pair = [f32; 2];

    const TILE_VECTORS: usize = 24;

    #[inline]
    fn enter<T: Task<Self>>(self, task: T) -> T::Output {
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma")]
        fn compiled<T: Task<Avx512>>(simd: Avx512, task: T) -> T::Output {
            task.run(simd)
        }
        // SAFETY: `self` exists, so the features were detected.
        unsafe { compiled(self, task) }
    }

    #[inline(always)]
    fn splat(self, x: f32) -> Self::V {
        // SAFETY: `self` proves the feature.
        unsafe { _mm512_set1_ps(x) }
    }

    #[inline(always)]
    fn load(self, src: &[f32; LANES]) -> Self::V {
        // SAFETY: `self` proves the feature; `src` is sixteen floats, and the load is unaligned.
        unsafe { _mm512_loadu_ps(src.as_ptr()) }
    }

    #[inline(always)]
    fn store(self, dst: &mut [f32; LANES], v: Self::V) {
        // SAFETY: `self` proves the feature; `dst` is sixteen floats, and the store is unaligned.
        unsafe { _mm512_storeu_ps(dst.as_mut_ptr(), v) }
    }

    #[inline(always)]
    fn widen(self, src: &[u16; LANES]) -> Self::V {
        // SAFETY: `self` proves the feature; `src` is 32 bytes, and the load is unaligned.
        unsafe {
            let bits = _mm256_loadu_si256(src.as_ptr().cast());
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(bits)))
        }
    }

    #[inline(always)]
    fn widen_int8(self, src: &[i8; LANES]) -> Self::V {
        // SAFETY: `self` proves the feature; `src` is 16 bytes, and the load is unaligned.
        unsafe {
            let bytes = _mm_loadu_si128(src.as_ptr().cast());
            _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes))
        }
    }

    #[inline(always)]
    fn field<const SHIFT: u32>(self, words: &[u8; 4 * LANES], mask: u32) -> Self::V {
        /// `a & b | c`
        const AND_OR: i32 = 0xEA;
        // SAFETY: `self` proves the feature; `words` is 64 bytes, and the load is unaligned.
        unsafe {
            let words = _mm512_srli_epi32::<SHIFT>(_mm512_loadu_si512(words.as_ptr().cast()));
            let mask = _mm512_set1_epi32(mask.cast_signed());
            let base = _mm512_castps_si512(_mm512_set1_ps(FIELD_BASE));
            _mm512_castsi512_ps(_mm512_ternarylogic_epi32::<AND_OR>(words, mask, base))
        }
    }

    #[inline(always)]
    fn add(self, a: Self::V, b: Self::V) -> Self::V {
        // SAFETY: `self` proves the feature.
        unsafe { _mm512_add_ps(a, b) }
    }

    #[inline(always)]
    fn mul(self, a: Self::V, b: Self::V) -> Self::V {
        // SAFETY: `self` proves the feature.
        unsafe { _mm512_mul_ps(a, b) }
    }

    #[inline(always)]
    fn div(self, a: Self::V, b: Self::V) -> Self::V {
        // SAFETY: `self` proves the feature.
        unsafe { _mm512_div_ps(a, b) }
    }

    #[inline(always)]
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        // SAFETY: `self` proves the feature.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn max(self, a: Self::V, b: Self::V) -> Self::V {
        // SAFETY: `self` proves the feature.
        unsafe { _mm512_max_ps(a, b) }
    }

    #[inline(always)]
    fn min(self, a: Self::V, b: Self::V) -> Self::V {
        // SAFETY: `self` proves the feature.
        unsafe { _mm512_min_ps(a, b) }
    }

    #[inline(always)]
    fn zero_below(self, v: Self::V, x: Self::V, bound: Self::V) -> Self::V {
        // SAFETY: `self` proves the feature.
        unsafe { _mm512_maskz_mov_ps(_mm512_cmp_ps_mask::<_CMP_NLT_UQ>(x, bound), v) }
    }

    #[inline(always)]
    fn pow2(self, n: Self::V) -> Self::V {
        // SAFETY: `self` proves the feature.
        unsafe { _mm512_scalef_ps(_mm512_set1_ps(1.0), n) }
    }

    #[inline(always)]
    fn pair(self, first: f32, second: f32) -> Self::Pair {
        [first, second]
    }

    #[inline(always)]
    fn dot_pair(self, acc: Self::V, x: &Self::Pair, w: &[u16; 2 * LANES]) -> Self::V {
        // SAFETY: `self` proves the feature; `w` is 64 bytes, and the load is unaligned.
        unsafe {
            let both = _mm512_loadu_si512(w.as_ptr().cast());
            let first = _mm512_castsi512_ps(_mm512_slli_epi32::<16>(both));
            let upper = _mm512_set1_epi32(0xFFFF_0000_u32 as i32);
            let second = _mm512_castsi512_ps(_mm512_and_si512(both, upper));
            let acc = _mm512_fmadd_ps(_mm512_set1_ps(x[0]), first, acc);
            _mm512_fmadd_ps(_mm512_set1_ps(x[1]), second, acc)
        }
    }

    #[inline(always)]
    fn widen_pairs(self, src: &[u16; 2 * LANES]) -> [Self::V; 2] {
        // SAFETY: `self` proves the feature; `src` is 64 bytes, and the load is unaligned.
        unsafe {
            let both = _mm512_loadu_si512(src.as_ptr().cast());
            let upper = _mm512_set1_epi32(0xFFFF_0000_u32 as i32);
            let even = _mm512_slli_epi32::<16>(both);
            let odd = _mm512_and_si512(both, upper);
            [_mm512_castsi512_ps(even), _mm512_castsi512_ps(odd)]
        }
    }
}
