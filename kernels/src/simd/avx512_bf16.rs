//! AVX-512 with bfloat16 dot products. It differs from [`Avx512`] in pairs of activations, which
//! are rounded to bfloat16 once. One instruction then adds two exact products to each lane.

use std::arch::x86_64::*;

use super::avx512::Avx512;
use super::element::bf16_bits;
use super::{LANES, Simd, Task};

/// Proof that the processor has AVX-512 F, BW, DQ, VL and BF16.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Avx512Bf16(Avx512);

impl Avx512Bf16 {
    pub(super) fn detect() -> Option<Self> {
        Avx512::detect().filter(|_| is_x86_feature_detected!("avx512bf16")).map(Self)
    }

    /// Returns whether a dot product takes less time than the two fused multiply-adds that it
    /// replaces. AMD's cores start as many dot products as multiply-adds, Intel's a quarter. On a
    /// fifth-generation Xeon, a core has 75 GFLOP/s by dot products and 160 by multiply-adds. The
    /// vendor decides, not a measurement, because rounding depends on the choice, and so may
    /// tokens.
    pub(super) fn is_faster() -> bool {
        let leaf = __cpuid(0);
        [leaf.ebx, leaf.edx, leaf.ecx].map(u32::to_le_bytes).as_flattened() == b"AuthenticAMD"
    }

    /// Returns the same instructions without those that multiply pairs.
    pub(super) fn without_pairs(self) -> Avx512 {
        self.0
    }
}

impl Simd for Avx512Bf16 {
    type V = __m512;
    /// Two bfloat16, the first in the low half.
    type Pair = u32;

    const TILE_VECTORS: usize = Avx512::TILE_VECTORS;

    #[inline]
    fn enter<T: Task<Self>>(self, task: T) -> T::Output {
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma")]
        fn compiled<T: Task<Avx512Bf16>>(simd: Avx512Bf16, task: T) -> T::Output {
            task.run(simd)
        }
        // SAFETY: `self` exists, so the features were detected.
        unsafe { compiled(self, task) }
    }

    #[inline(always)]
    fn splat(self, x: f32) -> Self::V {
        self.0.splat(x)
    }

    #[inline(always)]
    fn load(self, src: &[f32; LANES]) -> Self::V {
        self.0.load(src)
    }

    #[inline(always)]
    fn store(self, dst: &mut [f32; LANES], v: Self::V) {
        self.0.store(dst, v);
    }

    #[inline(always)]
    fn widen(self, src: &[u16; LANES]) -> Self::V {
        self.0.widen(src)
    }

    #[inline(always)]
    fn widen_int8(self, src: &[i8; LANES]) -> Self::V {
        self.0.widen_int8(src)
    }

    #[inline(always)]
    fn field<const SHIFT: u32>(self, words: &[u8; 4 * LANES], mask: u32) -> Self::V {
        self.0.field::<SHIFT>(words, mask)
    }

    #[inline(always)]
    fn add(self, a: Self::V, b: Self::V) -> Self::V {
        self.0.add(a, b)
    }

    #[inline(always)]
    fn mul(self, a: Self::V, b: Self::V) -> Self::V {
        self.0.mul(a, b)
    }

    #[inline(always)]
    fn div(self, a: Self::V, b: Self::V) -> Self::V {
        self.0.div(a, b)
    }

    #[inline(always)]
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        self.0.fma(a, b, c)
    }

    #[inline(always)]
    fn max(self, a: Self::V, b: Self::V) -> Self::V {
        self.0.max(a, b)
    }

    #[inline(always)]
    fn min(self, a: Self::V, b: Self::V) -> Self::V {
        self.0.min(a, b)
    }

    #[inline(always)]
    fn zero_below(self, v: Self::V, x: Self::V, bound: Self::V) -> Self::V {
        self.0.zero_below(v, x, bound)
    }

    #[inline(always)]
    fn pow2(self, n: Self::V) -> Self::V {
        self.0.pow2(n)
    }

    #[inline(always)]
    fn pair(self, first: f32, second: f32) -> Self::Pair {
        u32::from(bf16_bits(first)) | u32::from(bf16_bits(second)) << 16
    }

    #[inline(always)]
    fn dot_pair(self, acc: Self::V, x: &Self::Pair, w: &[u16; 2 * LANES]) -> Self::V {
        // SAFETY: `self` proves the features. `w` is 64 bytes, and the load is unaligned. The
        // transmuted types are both 512 bits without invalid values.
        unsafe {
            let w: __m512bh = std::mem::transmute(_mm512_loadu_si512(w.as_ptr().cast()));
            let x: __m512bh = std::mem::transmute(_mm512_set1_epi32(*x as i32));
            _mm512_dpbf16_ps(acc, x, w)
        }
    }

    const HAS_DOT_BF16: bool = true;

    #[inline(always)]
    fn widen_pairs(self, src: &[u16; 2 * LANES]) -> [Self::V; 2] {
        self.0.widen_pairs(src)
    }

    #[inline(always)]
    fn narrow_pairs(self, dst: &mut [u16; 2 * LANES], even: Self::V, odd: Self::V) {
        /// The place of each element in the concatenation of both vectors.
        const SIDE_BY_SIDE: [u16; 2 * LANES] = {
            let mut places = [0; 2 * LANES];
            let mut lane = 0;
            while lane < LANES {
                places[2 * lane] = lane as u16;
                places[2 * lane + 1] = (LANES + lane) as u16;
                lane += 1;
            }
            places
        };
        // SAFETY: `self` proves the features. Both arrays are 64 bytes, and load and store are
        // unaligned. The transmuted types are both 512 bits without invalid values.
        unsafe {
            let places = _mm512_loadu_si512(SIDE_BY_SIDE.as_ptr().cast());
            let both: __m512i = std::mem::transmute(_mm512_cvtne2ps_pbh(odd, even));
            let pairs = _mm512_permutexvar_epi16(places, both);
            _mm512_storeu_si512(dst.as_mut_ptr().cast(), pairs);
        }
    }

    #[inline(always)]
    fn dot_bf16(self, acc: Self::V, x: u32, w: &[u16; 2 * LANES]) -> Self::V {
        self.dot_pair(acc, &x, w)
    }
}
