//! Tensors of GGUF files: the layout of their blocks, and the numbers that the metadata holds in
//! place of tensors.

mod blocks;
mod formats;
mod numbers;

pub(super) use blocks::BlockFormat;
pub(super) use numbers::numbers;

/// The accepted types of tensors.
pub(super) const ACCEPTED: &str = "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, Q4_K, \
    Q5_K, Q6_K, IQ4_NL, IQ4_XS and MXFP4";

/// Tensors that are read together with the metadata: divisors of rotary frequencies.
pub(super) const OF_METADATA: [&str; 3] =
    ["rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"];
