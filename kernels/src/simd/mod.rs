//! Vectors of sixteen f32 lanes on whatever the processor has, chosen at run time.
//!
//! A kernel is written once, against [`Simd`], as a [`Kernel`] or [`Task`]; [`Simd::enter`] compiles
//! it for each instruction set. Values of the `Simd` types are proof that the processor has the
//! instructions, so kernels are safe code and `unsafe` stays in this folder.

#[cfg(target_arch = "x86_64")]
pub(crate) mod amx;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod avx512_bf16;
mod element;
mod isa;
mod math;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;
mod prefetch;
mod rows;
#[cfg(test)]
mod tests;
mod tiles;

pub(crate) use element::{Element, bf16_bits};
pub use isa::cpu_isa;
pub(crate) use isa::{Isa, Kernel, Task};
pub(crate) use math::{exp, max_of, sum_of};
pub(crate) use prefetch::{prefetch, prefetch_l2};
pub(crate) use rows::{PairMap, map_row, sum_of_squares};
pub(crate) use tiles::Tiles;

/// Lanes of a vector, on every instruction set.
pub(crate) const LANES: usize = 16;

/// What [`Simd::field`] adds: the bits of a small integer are the last ones of its sum with this.
pub(crate) const FIELD_BASE: f32 = 8_388_608.0;

/// Sixteen f32 lanes on one instruction set.
pub(crate) trait Simd: Copy + Send + Sync + 'static {
    /// Sixteen f32.
    type V: Copy;
    /// Two neighbouring activations, in the form that [`Self::dot_pair`] broadcasts.
    type Pair: bytemuck::Pod + Send + Sync;

    /// Vectors that a register tile may accumulate in: what the registers hold, with room for
    /// operands.
    const TILE_VECTORS: usize;

    /// Runs `task` compiled for this instruction set. Code that runs on another thread must enter
    /// there.
    fn enter<T: Task<Self>>(self, task: T) -> T::Output;

    /// All lanes `x`.
    fn splat(self, x: f32) -> Self::V;
    /// From memory.
    fn load(self, src: &[f32; LANES]) -> Self::V;
    /// To memory.
    fn store(self, dst: &mut [f32; LANES], v: Self::V);
    /// From bfloat16 in memory, exactly.
    fn widen(self, src: &[u16; LANES]) -> Self::V;
    /// From int8 in memory, exactly.
    fn widen_int8(self, src: &[i8; LANES]) -> Self::V;
    /// [`FIELD_BASE`] plus those of each word's bits from `SHIFT` on that `mask`, below 2²³, has; words
    /// are little-endian.
    fn field<const SHIFT: u32>(self, words: &[u8; 4 * LANES], mask: u32) -> Self::V;
    /// `a + b`
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a · b`
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a / b`
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a · b + c`, rounded once where the instruction exists.
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// The larger; `b` where either is NaN.
    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    /// The smaller; `b` where either is NaN.
    fn min(self, a: Self::V, b: Self::V) -> Self::V;
    /// `v` where `x >= bound` or x is NaN, else 0.
    fn zero_below(self, v: Self::V, x: Self::V, bound: Self::V) -> Self::V;
    /// `2^n` for whole n in `-126..=127`.
    fn pow2(self, n: Self::V) -> Self::V;

    /// A pair of activations.
    fn pair(self, first: f32, second: f32) -> Self::Pair;
    /// `acc[i] + x.0 · w[2 i] + x.1 · w[2 i + 1]` for bfloat16 weights. x stays where it lies: a copy
    /// is read as one integer, whose halves cost more to broadcast than two loads.
    fn dot_pair(self, acc: Self::V, x: &Self::Pair, w: &[u16; 2 * LANES]) -> Self::V;

    /// Whether [`Self::dot_bf16`] is one instruction, and so the way to multiply bfloat16.
    const HAS_DOT_BF16: bool = false;
    /// The even elements, and the odd ones, from bfloat16 exactly.
    fn widen_pairs(self, src: &[u16; 2 * LANES]) -> [Self::V; 2];
    /// The nearest bfloat16 of both, side by side: what [`Self::widen_pairs`] takes apart. Only where
    /// [`Self::HAS_DOT_BF16`].
    fn narrow_pairs(self, dst: &mut [u16; 2 * LANES], even: Self::V, odd: Self::V) {
        let _ = (dst, even, odd);
        unreachable!("this instruction set has no products of bfloat16")
    }
    /// `acc[i] + x.0 · w[2 i] + x.1 · w[2 i + 1]` for two bfloat16 x, the first in the low half.
    /// Only where [`Self::HAS_DOT_BF16`].
    fn dot_bf16(self, acc: Self::V, x: u32, w: &[u16; 2 * LANES]) -> Self::V {
        let _ = (acc, x, w);
        unreachable!("this instruction set widens bfloat16")
    }
}
