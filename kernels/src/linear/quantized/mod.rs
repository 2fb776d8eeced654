//! Linear layers over small integers: weights of 8 or 4 bits, activations quantized to 8 as they
//! come.
//!
//! A weight is `s · (code - zero) + z` with a scale `s` and, where codes have no common zero, an
//! offset `z` for each output and group of inputs; an activation is `a · q` with a scale for each
//! row and block of groups ([`pack::Groups`]). With `g` over the groups of block `k`, and `i` over
//! the inputs of a group:
//!
//! `y[r][o] = b[o] + Σ_k a[r][k] · Σ_g (s[o][g] · Σ_i (code[o][i] - zero) · q[r][i] + z[o][g] · Σ_i q[r][i])`
//!
//! | | |
//! |---|---|
//! | shapes | x `[num_tokens, in]`, W `[out, in]`, b `[out]`, y `[num_tokens, out]` |
//! | dtypes | x, b, y f32; codes u8 or two a byte; scales and offsets f16, or f32 where f16 would lose anything; q i8 |
//! | bytes moved | the packed weight once for each [`Dots::ROWS_MAX`] rows, from cache but for the first time; x once a piece of work, as i8 |
//! | order of a sum | within a group in i32, exactly; groups within a block, then blocks, in order in f32, a fused multiply-add each. Nothing else enters: a row's bytes do not depend on the batch |
//! | tolerance | against f64 over the same integers: `1e-7 · (groups + 4) · Σ` of the groups' magnitudes. Against the weights before: half a step of a code; against the activations before: `max|x| / 254` of a block each |
//!
//! One group of all inputs makes the int8 scheme of vLLM's compressed-tensors (weights by output
//! channel, activations by token); groups of 32 make GGUF's `Q8_0` and `Q4_0`.

mod activations;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(feature = "gpu")]
mod coded;
mod factors;
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
pub(super) use product::product;
pub use scheme::QuantizationScheme;
