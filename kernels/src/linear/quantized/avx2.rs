//! AVX2: `vpmaddubsw` adds two products of an unsigned and a signed byte in 16 bits, with
//! saturation. Neither use comes near saturation. Two products of a code below 16 are below 3,811.
//! The other use lowers a code by 128 and moves its sign to the activation: two of those products
//! are below 32,513. `vpmaddwd` widens the sums.

use std::arch::x86_64::*;

use super::e2m1::INTEGERS;
use super::isa::{CodeVector, Dots, DotsTask};
use crate::simd::LANES;

/// Proof that the processor has AVX2, FMA and F16C.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Avx2(());

impl Avx2 {
    pub(super) fn detect() -> Option<Self> {
        (is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c"))
        .then_some(Self(()))
    }
}

/// Lanes 0 to 7, and 8 to 15.
type IntHalves = [__m256i; 2];
/// The same lanes of f32.
type FloatHalves = [__m256; 2];

/// Adds neighbouring pairs of i16 to i32 lanes.
///
/// # Safety
/// The processor has AVX2.
#[inline(always)]
unsafe fn widen_add(acc: __m256i, pairs: __m256i) -> __m256i {
    // SAFETY: the processor has the feature by the contract.
    unsafe { _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1))) }
}

impl Dots for Avx2 {
    type Ints = IntHalves;
    type Floats = FloatHalves;
    type Codes = IntHalves;

    const ROWS_MAX: usize = 2;
    const U8_LOWERED_BY: i32 = 128;

    #[inline]
    fn enter<T: DotsTask>(self, task: T) -> T::Output {
        #[target_feature(enable = "avx2,fma,f16c")]
        fn compiled<T: DotsTask>(dots: Avx2, task: T) -> T::Output {
            task.run(dots)
        }
        // SAFETY: `self` exists, so the features were detected.
        unsafe { compiled(self, task) }
    }

    #[inline(always)]
    fn ints(self, x: i32) -> IntHalves {
        // SAFETY: `self` proves the feature.
        unsafe { [_mm256_set1_epi32(x); 2] }
    }

    #[inline(always)]
    fn codes(self, src: &CodeVector) -> IntHalves {
        // SAFETY: `self` proves the feature; `src` is 64 bytes, and the loads are unaligned.
        unsafe {
            let src = src.as_ptr().cast::<__m256i>();
            [_mm256_loadu_si256(src), _mm256_loadu_si256(src.add(1))]
        }
    }

    #[inline(always)]
    fn halves(self, src: &CodeVector) -> [IntHalves; 2] {
        let both = self.codes(src);
        // SAFETY: `self` proves the feature.
        unsafe {
            let low = _mm256_set1_epi8(15);
            let shifted = [_mm256_srli_epi16::<4>(both[0]), _mm256_srli_epi16::<4>(both[1])];
            [
                [_mm256_and_si256(both[0], low), _mm256_and_si256(both[1], low)],
                [_mm256_and_si256(shifted[0], low), _mm256_and_si256(shifted[1], low)],
            ]
        }
    }

    #[inline(always)]
    fn dot_u8(self, mut acc: IntHalves, w: IntHalves, x: u32) -> IntHalves {
        // SAFETY: `self` proves the feature.
        unsafe {
            let x = _mm256_set1_epi32(x as i32);
            let lower = _mm256_set1_epi8(-128);
            // Closures do not inherit the instruction set, hence the loop.
            for (acc, w) in acc.iter_mut().zip(w) {
                let w = _mm256_xor_si256(w, lower);
                let pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
                *acc = widen_add(*acc, pairs);
            }
        }
        acc
    }

    #[inline(always)]
    fn e2m1(self, codes: IntHalves) -> IntHalves {
        // SAFETY: `self` proves the feature; the table is 16 bytes, and the load is unaligned.
        unsafe {
            let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(INTEGERS.as_ptr().cast()));
            [_mm256_shuffle_epi8(table, codes[0]), _mm256_shuffle_epi8(table, codes[1])]
        }
    }

    #[inline(always)]
    fn dot_u4(self, acc: IntHalves, w: IntHalves, x: u32) -> IntHalves {
        // SAFETY: `self` proves the feature.
        unsafe {
            let x = _mm256_set1_epi32(x as i32);
            [
                widen_add(acc[0], _mm256_maddubs_epi16(w[0], x)),
                widen_add(acc[1], _mm256_maddubs_epi16(w[1], x)),
            ]
        }
    }

    #[inline(always)]
    fn add(self, a: IntHalves, b: IntHalves) -> IntHalves {
        // SAFETY: `self` proves the feature.
        unsafe { [_mm256_add_epi32(a[0], b[0]), _mm256_add_epi32(a[1], b[1])] }
    }

    #[inline(always)]
    fn floats(self, x: f32) -> FloatHalves {
        // SAFETY: `self` proves the feature.
        unsafe { [_mm256_set1_ps(x); 2] }
    }

    #[inline(always)]
    fn load(self, src: &[f32; LANES]) -> FloatHalves {
        // SAFETY: `self` proves the feature; `src` is sixteen floats, and the loads are unaligned.
        unsafe { [_mm256_loadu_ps(src.as_ptr()), _mm256_loadu_ps(src.as_ptr().add(8))] }
    }

    #[inline(always)]
    fn load_f16(self, src: &[u16; LANES]) -> FloatHalves {
        // SAFETY: `self` proves the feature; `src` is 32 bytes, and the loads are unaligned.
        unsafe {
            let src = src.as_ptr().cast::<__m128i>();
            [_mm256_cvtph_ps(_mm_loadu_si128(src)), _mm256_cvtph_ps(_mm_loadu_si128(src.add(1)))]
        }
    }

    #[inline(always)]
    fn load_i8(self, src: &[i8; LANES]) -> FloatHalves {
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
    fn to_floats(self, x: IntHalves) -> FloatHalves {
        // SAFETY: `self` proves the feature.
        unsafe { [_mm256_cvtepi32_ps(x[0]), _mm256_cvtepi32_ps(x[1])] }
    }

    #[inline(always)]
    fn fma(self, a: FloatHalves, b: FloatHalves, c: FloatHalves) -> FloatHalves {
        // SAFETY: `self` proves the feature.
        unsafe { [_mm256_fmadd_ps(a[0], b[0], c[0]), _mm256_fmadd_ps(a[1], b[1], c[1])] }
    }

    #[inline(always)]
    fn store(self, dst: &mut [f32; LANES], v: FloatHalves) {
        // SAFETY: `self` proves the feature; `dst` is sixteen floats, and the stores are unaligned.
        unsafe {
            _mm256_storeu_ps(dst.as_mut_ptr(), v[0]);
            _mm256_storeu_ps(dst.as_mut_ptr().add(8), v[1]);
        }
    }
}
