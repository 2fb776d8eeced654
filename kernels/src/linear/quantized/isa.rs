//! Sums of products of small integers, on the instructions that the processor has.

use super::portable::Portable;
#[cfg(target_arch = "x86_64")]
use super::{avx2::Avx2, vnni::Vnni};
use crate::simd::{Isa, LANES};

/// Codes that one vector instruction takes: four inputs of each of [`LANES`] outputs.
pub(super) type CodeVector = [u8; 4 * LANES];

/// Sixteen i32 lanes, each of which adds four products at a time. A value of a type with this trait
/// proves that the processor has the instructions.
pub(crate) trait Dots: Copy + Send + Sync + 'static {
    /// Sixteen i32.
    type Ints: Copy;
    /// Sixteen f32.
    type Floats: Copy;
    /// A [`CodeVector`].
    type Codes: Copy;

    /// Rows whose sums for 32 outputs the registers hold.
    const ROWS_MAX: usize;
    /// The number that [`Dots::dot_u8`] subtracts from a code.
    const U8_LOWERED_BY: i32;

    /// Runs `task` compiled for these instructions.
    fn enter<T: DotsTask>(self, task: T) -> T::Output;

    /// Returns `x` in all lanes.
    fn ints(self, x: i32) -> Self::Ints;
    /// Loads codes from memory.
    fn codes(self, src: &CodeVector) -> Self::Codes;
    /// Returns the low and the high halves of bytes.
    fn halves(self, src: &CodeVector) -> [Self::Codes; 2];
    /// Returns `acc[l] + Σ_j (w[4 l + j] - U8_LOWERED_BY) · x[j]`, wrapping. The bytes of `x` are
    /// i8 above -128.
    fn dot_u8(self, acc: Self::Ints, w: Self::Codes, x: u32) -> Self::Ints;
    /// Returns the integers of codes of [`e2m1`](super::e2m1), each below 16.
    fn e2m1(self, codes: Self::Codes) -> Self::Codes;
    /// Returns `acc[l] + Σ_j w[4 l + j] · x[j]` for codes below 32.
    fn dot_u4(self, acc: Self::Ints, w: Self::Codes, x: u32) -> Self::Ints;
    /// Returns `a + b`, wrapping.
    fn add(self, a: Self::Ints, b: Self::Ints) -> Self::Ints;

    /// Returns `x` in all lanes.
    fn floats(self, x: f32) -> Self::Floats;
    /// Loads f32 from memory.
    fn load(self, src: &[f32; LANES]) -> Self::Floats;
    /// Loads f16 from memory, widened exactly.
    fn load_f16(self, src: &[u16; LANES]) -> Self::Floats;
    /// Loads i8 from memory, widened exactly.
    fn load_i8(self, src: &[i8; LANES]) -> Self::Floats;
    /// Returns the nearest f32.
    fn to_floats(self, x: Self::Ints) -> Self::Floats;
    /// Returns `a · b + c`.
    fn fma(self, a: Self::Floats, b: Self::Floats, c: Self::Floats) -> Self::Floats;
    /// Stores `v` to memory.
    fn store(self, dst: &mut [f32; LANES], v: Self::Floats);
}

/// A computation on any implementation of [`Dots`]. Implementations mark `run`, and all functions
/// in its inner loops, `#[inline(always)]`.
pub(crate) trait DotsTask {
    /// The result.
    type Output;
    /// Computes the result.
    fn run<D: Dots>(self, dots: D) -> Self::Output;
}

/// The implementation of [`Dots`] for an instruction set.
#[derive(Debug, Clone, Copy)]
pub(crate) enum DotsIsa {
    /// AVX-512 with `vpdpbusd`.
    #[cfg(target_arch = "x86_64")]
    Vnni(Vnni),
    /// AVX2.
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    /// Plain arrays.
    Portable(Portable),
}

impl DotsIsa {
    /// Returns the best implementation that is not wider than `isa`.
    pub(super) fn of(isa: Isa) -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = Avx2::detect().map(Self::Avx2);
            let best = match isa.name() {
                "portable" => None,
                "avx2" => avx2,
                _ => Vnni::detect().map(Self::Vnni).or(avx2),
            };
            best.unwrap_or(Self::Portable(Portable))
        }
        #[cfg(not(target_arch = "x86_64"))]
        {
            let _ = isa;
            Self::Portable(Portable)
        }
    }

    /// Runs `task`, compiled for this instruction set.
    pub(super) fn run<T: DotsTask>(self, task: T) -> T::Output {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Vnni(dots) => dots.enter(task),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(dots) => dots.enter(task),
            Self::Portable(dots) => dots.enter(task),
        }
    }
}
