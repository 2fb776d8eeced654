//! Linear layers over small integers: weights of 8 or 4 bits. Activations are quantized to 8 bits
//! as they come, or stay as they are.
//!
//! A weight is `s · (code - zero) + z` with a scale `s` for each output and group of inputs. Where
//! codes have no common zero, the group also has a zero point `p` or an offset `z`. A zero point is
//! an integer for which `z = -s · p`. With [`ActivationDtype::Int8`] an activation is `a · q`, with
//! a scale for each row and block of groups ([`pack::Groups`]). Let `g` count the groups of block
//! `k`, and `i` the inputs of a group:
//!
//! `y[r][o] = b[o] + Σ_k a[r][k] ·
//! Σ_g (s[o][g] · Σ_i (code[o][i] - zero) · q[r][i] + z[o][g] · Σ_i q[r][i])`
//!
//! | | |
//! |---|---|
//! | shapes | x `[num_tokens, in]`, W `[out, in]`, b `[out]`, y `[num_tokens, out]` |
//! | dtypes | x, b, y f32; codes u8 or two a byte; zero points i8; scales and offsets f16 where that changes none by more than 2⁻¹¹ of a scale, else f32; q i8 |
//! | bytes moved | the packed weight once for each [`Dots::ROWS_MAX`] rows, from cache except for the first time; x once a piece of work, as i8 |
//! | order of a sum | within a group in i32, exactly, zero points included; groups within a block, then blocks, in order in f32, a fused multiply-add each. Nothing else matters: a row's bytes do not depend on the batch |
//! | tolerance | against f64 over the same integers: `1e-7 · (groups + 4) · Σ` of the groups' magnitudes; against the activations before: `max|x| / 254` of a block each. Against weights quantized here: half a step of a code |
//!
//! Codes of 4 bits may also be floats ([`e2m1`]): MXFP4 has such codes in groups of 32.
//!
//! One group of all inputs makes the int8 scheme of vLLM's compressed-tensors (weights by output
//! channel, activations by token). Groups of 32 make GGUF's `Q8_0` and `Q4_0`.
//!
//! With [`ActivationDtype::F32`] the product is that of dense f32 weights over the numbers that
//! codes stand for. Each number is rounded once ([`dequantize`]), and its factors are not rounded
//! at all. With [`ActivationDtype::Bf16`] it is that of dense bf16 weights, where the instruction
//! set has dot products of bf16 (x and W are rounded to bf16). Without those it equals the former.
//!
//! A block of inputs ([`dequantize::spans`]) becomes numbers in L1, for all rows of a piece of
//! work. Codes are read as often as above, and the order of a sum is that of [`super`], for every
//! batch. Tolerance: `1e-5 · Σ|x w|` against f64 over the same, rounded, operands.

mod activations;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(feature = "gpu")]
mod coded;
mod dequantize;
mod e2m1;
mod factors;
mod float_product;
mod float_products;
#[cfg(test)]
mod float_tests;
mod fused;
mod isa;
mod pack;
mod portable;
mod product;
#[cfg(test)]
mod reference;
mod rows;
mod scheme;
mod stored;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod vnni;

#[cfg(feature = "gpu")]
pub(crate) use coded::CodedMatrix;
pub(crate) use pack::PackedQuantized;
pub use scheme::QuantizationScheme;

use super::groups::RowGroups;
use super::output::{Epilogue, Output};
use crate::WeightDtype;
use crate::simd::Isa;
use crate::threads::SharedMut;

/// The format of activations when they meet quantized weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ActivationDtype {
    /// Integers of 8 bits, quantized as they come: products of integers. Only on the CPU.
    #[default]
    Int8,
    /// bfloat16, as for dense weights of bfloat16: rounded where the instruction set multiplies
    /// bfloat16, else f32.
    Bf16,
    /// IEEE binary16. Only on GPUs.
    F16,
    /// IEEE binary32: neither activations nor weights lose anything.
    F32,
}

impl From<WeightDtype> for ActivationDtype {
    fn from(dtype: WeightDtype) -> Self {
        match dtype {
            WeightDtype::F32 => Self::F32,
            WeightDtype::F16 => Self::F16,
            WeightDtype::Bf16 => Self::Bf16,
        }
    }
}

impl ActivationDtype {
    /// Returns the name that settings use.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Int8 => "int8",
            Self::Bf16 => "bfloat16",
            Self::F16 => "float16",
            Self::F32 => "float32",
        }
    }
}

/// Computes `x Wᵀ` and an epilogue of one part on one instruction set, from row-major x
/// `[rows, inputs]` to y `[rows, outputs]`.
pub(super) fn product(
    isa: Isa,
    x: &[f32],
    weight: &PackedQuantized,
    epilogue: Epilogue<'_>,
    y: &mut [f32],
) {
    let activations = weight.activations;
    if activations == ActivationDtype::Int8 {
        return product::product(isa, x, weight, epilogue, y);
    }
    let outputs = weight.header.outputs;
    let output = &Output { y: SharedMut::new(y), outputs, epilogue };
    let may_round = activations == ActivationDtype::Bf16;
    isa.run(float_product::FloatProduct { x, weight, output, may_round });
}

/// Computes the products of groups of rows, whose weights are [like](PackedQuantized::is_like) one
/// another, from row-major x to y.
pub(super) fn grouped(isa: Isa, x: &[f32], groups: &RowGroups<'_>, y: &mut [f32]) {
    if groups.weight(0).quantized().activations == ActivationDtype::Int8 {
        product::grouped(isa, x, groups, y);
    } else {
        float_products::grouped(isa, x, groups, y);
    }
}
