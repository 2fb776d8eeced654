//! Vectors of sixteen f32 lanes on the instructions of the processor, chosen at run time.
//!
//! A kernel is written once, for [`Simd`], as a [`Kernel`] or [`Task`]. [`Simd::enter`] compiles it
//! for each instruction set. A value of a `Simd` type proves that the processor has the
//! instructions. Kernels are therefore safe code, and `unsafe` stays in this folder.

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
pub(crate) use math::{exp, expm1, limited, max_of, softplus, sum_of, tanh};
pub(crate) use prefetch::{prefetch, prefetch_l2};
pub(crate) use rows::{
    Map, PairMap, map_in_place, map_onto, map_row, sum_of_row, sum_of_squared_deviations,
    sum_of_squares,
};
pub(crate) use tiles::Tiles;

/// Lanes of a vector, on every instruction set.
pub(crate) const LANES: usize = 16;

/// The number that [`Simd::field`] adds: its sum with a small integer ends with the integer's bits.
pub(crate) const FIELD_BASE: f32 = 8_388_608.0;

/// Sixteen f32 lanes on one instruction set.
pub(crate) trait Simd: Copy + Send + Sync + 'static {
    /// Sixteen f32.
    type V: Copy;
    /// Two neighbouring activations, in the form that [`Self::dot_pair`] broadcasts.
    type Pair: bytemuck::Pod + Send + Sync;

    /// Vectors that a register tile may accumulate in: as many as the registers hold beside
    /// operands.
    const TILE_VECTORS: usize;

    /// Runs `task` compiled for this instruction set. Code that runs on another thread must enter
    /// on that thread.
    fn enter<T: Task<Self>>(self, task: T) -> T::Output;

    /// Returns `x` in all lanes.
    fn splat(self, x: f32) -> Self::V;
    /// Loads f32 from memory.
    fn load(self, src: &[f32; LANES]) -> Self::V;
    /// Stores `v` to memory.
    fn store(self, dst: &mut [f32; LANES], v: Self::V);
    /// Loads bfloat16 from memory, widened exactly.
    fn widen(self, src: &[u16; LANES]) -> Self::V;
    /// Loads int8 from memory, widened exactly.
    fn widen_int8(self, src: &[i8; LANES]) -> Self::V;
    /// Returns [`FIELD_BASE`] plus the field of each word that begins at bit `SHIFT` and has the
    /// bits of `mask`, which is below 2²³. Words are little-endian.
    fn field<const SHIFT: u32>(self, words: &[u8; 4 * LANES], mask: u32) -> Self::V;
    /// Returns `a + b`.
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    /// Returns `a · b`.
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    /// Returns `a / b`.
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    /// Returns `a · b + c`, rounded once where the instruction exists.
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// Returns the larger; `b` where either is NaN.
    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    /// Returns the smaller; `b` where either is NaN.
    fn min(self, a: Self::V, b: Self::V) -> Self::V;
    /// Returns `v` where `x >= bound` or x is NaN, else 0.
    fn zero_below(self, v: Self::V, x: Self::V, bound: Self::V) -> Self::V;
    /// Returns `2^n` for whole n in `-126..=127`.
    fn pow2(self, n: Self::V) -> Self::V;

    /// Returns a pair of activations.
    fn pair(self, first: f32, second: f32) -> Self::Pair;
    /// Returns `acc[i] + x.0 · w[2 i] + x.1 · w[2 i + 1]` for bfloat16 weights. It takes x by
    /// reference: a copy would be read as one integer, whose halves cost more to broadcast than two
    /// loads.
    fn dot_pair(self, acc: Self::V, x: &Self::Pair, w: &[u16; 2 * LANES]) -> Self::V;

    /// Whether [`Self::dot_bf16`] is one instruction, and therefore the way to multiply bfloat16.
    const HAS_DOT_BF16: bool = false;
    /// Loads the even elements and the odd ones from bfloat16, widened exactly.
    fn widen_pairs(self, src: &[u16; 2 * LANES]) -> [Self::V; 2];
    /// Writes the nearest bfloat16 of both, side by side: the inverse of [`Self::widen_pairs`].
    /// Only where [`Self::HAS_DOT_BF16`].
    fn narrow_pairs(self, dst: &mut [u16; 2 * LANES], even: Self::V, odd: Self::V) {
        let _ = (dst, even, odd);
        unreachable!("this instruction set has no products of bfloat16")
    }
    /// Returns `acc[i] + x.0 · w[2 i] + x.1 · w[2 i + 1]` for two bfloat16 x, the first in the low
    /// half. Only where [`Self::HAS_DOT_BF16`].
    fn dot_bf16(self, acc: Self::V, x: u32, w: &[u16; 2 * LANES]) -> Self::V {
        let _ = (acc, x, w);
        unreachable!("this instruction set widens bfloat16")
    }
}
