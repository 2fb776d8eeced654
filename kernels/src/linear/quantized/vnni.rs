//! AVX-512 with VNNI: `vpdpbusd` adds four products of an unsigned and a signed byte to each lane,
//! without saturation.

use std::arch::x86_64::*;

use super::e2m1::INTEGERS;
use super::isa::{CodeVector, Dots, DotsTask};
use crate::simd::LANES;

/// Proof that the processor has AVX-512 F, BW, DQ, VL and VNNI.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Vnni(());

impl Vnni {
    pub(super) fn detect() -> Option<Self> {
        (is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512vnni"))
        .then_some(Self(()))
    }
}

impl Dots for Vnni {
    type Ints = __m512i;
    type Floats = __m512;
    type Codes = __m512i;

    const ROWS_MAX: usize = 12;
    const U8_LOWERED_BY: i32 = 0;

    #[inline]
    fn enter<T: DotsTask>(self, task: T) -> T::Output {
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,fma")]
        fn compiled<T: DotsTask>(dots: Vnni, task: T) -> T::Output {
            task.run(dots)
        }
        // SAFETY: `self` exists, so the features were detected.
        unsafe { compiled(self, task) }
    }

    #[inline(always)]
    fn ints(self, x: i32) -> __m512i {
        // SAFETY: `self` proves the feature.
        unsafe { _mm512_set1_epi32(x) }
    }

    #[inline(always)]
    fn codes(self, src: &CodeVector) -> __m512i {
        // SAFETY: `self` proves the feature; `src` is 64 bytes, and the load is unaligned.
        unsafe { _mm512_loadu_si512(src.as_ptr().cast()) }
    }

    #[inline(always)]
    fn halves(self, src: &CodeVector) -> [__m512i; 2] {
        let both = self.codes(src);
        // SAFETY: `self` proves the feature.
        unsafe {
            let low = _mm512_set1_epi8(15);
            let high = _mm512_srli_epi16::<4>(both);
            [_mm512_and_si512(both, low), _mm512_and_si512(high, low)]
        }
    }

    #[inline(always)]
    fn dot_u8(self, acc: __m512i, w: __m512i, x: u32) -> __m512i {
        // SAFETY: `self` proves the feature.
        unsafe { _mm512_dpbusd_epi32(acc, w, _mm512_set1_epi32(x as i32)) }
    }

    #[inline(always)]
    fn e2m1(self, codes: __m512i) -> __m512i {
        // SAFETY: `self` proves the feature; the table is 16 bytes, and the load is unaligned.
        unsafe {
            let table = _mm512_broadcast_i32x4(_mm_loadu_si128(INTEGERS.as_ptr().cast()));
            _mm512_shuffle_epi8(table, codes)
        }
    }

    #[inline(always)]
    fn dot_u4(self, acc: __m512i, w: __m512i, x: u32) -> __m512i {
        self.dot_u8(acc, w, x)
    }

    #[inline(always)]
    fn add(self, a: __m512i, b: __m512i) -> __m512i {
        // SAFETY: `self` proves the feature.
        unsafe { _mm512_add_epi32(a, b) }
    }

    #[inline(always)]
    fn floats(self, x: f32) -> __m512 {
        // SAFETY: `self` proves the feature.
        unsafe { _mm512_set1_ps(x) }
    }

    #[inline(always)]
    fn load(self, src: &[f32; LANES]) -> __m512 {
        // SAFETY: `self` proves the feature; `src` is sixteen floats, and the load is unaligned.
        unsafe { _mm512_loadu_ps(src.as_ptr()) }
    }

    #[inline(always)]
    fn load_f16(self, src: &[u16; LANES]) -> __m512 {
        // SAFETY: `self` proves the feature; `src` is 32 bytes, and the load is unaligned.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(src.as_ptr().cast())) }
    }

    #[inline(always)]
    fn load_i8(self, src: &[i8; LANES]) -> __m512 {
        // SAFETY: `self` proves the feature; `src` is 16 bytes, and the load is unaligned.
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(src.as_ptr().cast()))) }
    }

    #[inline(always)]
    fn to_floats(self, x: __m512i) -> __m512 {
        // SAFETY: `self` proves the feature.
        unsafe { _mm512_cvtepi32_ps(x) }
    }

    #[inline(always)]
    fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: `self` proves the feature.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    fn store(self, dst: &mut [f32; LANES], v: __m512) {
        // SAFETY: `self` proves the feature; `dst` is sixteen floats, and the store is unaligned.
        unsafe { _mm512_storeu_ps(dst.as_mut_ptr(), v) }
    }
}
