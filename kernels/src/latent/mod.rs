//! The parts of multi-head latent attention (DeepSeek-AI 2024, "DeepSeek-V2"; HF
//! `DeepseekV3Attention`) around the paged attention, in the absorbed form.
//!
//! The cache holds one vector a token: its latent `c` `[rank]`, then the rotated key `k_r`
//! `[rope]`. HF expands the latent to a key and a value for each head h, `k_h = [K_h c, k_r]` and
//! `v_h = V_h c`. Here the two products move to the other side:
//!
//! ```text
//! q_h·k_h = (K_hᵀ q_h)·c + q_r·k_r          Σ_j p_j v_hj = V_h Σ_j p_j c_j
//! ```
//!
//! So attention has one key-value head. Its queries are `[K_hᵀ q_h, q_r]`, its keys `[c, k_r]`, and
//! its values are the first `rank` elements of its keys. A prompt and a decoded token have the same
//! arithmetic, so no byte depends on the cut of a prompt.
//!
//! | operation | from | to |
//! |---|---|---|
//! | [`latent_queries`] | `[num_tokens, num_heads · (nope + rope)]` | `[num_tokens, num_heads · (rank + rope)]` |
//! | [`latent_keys`] | `[num_tokens, rank + rope]`, as projected | the same shape: the latent normalised, the rest rotated |
//! | [`latent_values`] | `[num_tokens, num_heads · rank]` | `[num_tokens, num_heads · value]` |
//!
//! | | |
//! |---|---|
//! | dtypes | f32; K and V in every form of [`LinearWeight`] |
//! | bytes moved | the matrices of all heads once for 480 tokens, and the rows of queries, keys and values |
//! | order | each head's rows are those of a [`linear`](crate::linear()) layer, so a token's bytes do not depend on the batch |
//! | threads | the threads share all pieces of all heads in one parallel region; AMX with bf16 takes the heads in turn |
//! | tolerance | that of the products, of [`rms_norm`](crate::rms_norm()) and of [`rope`](crate::rope()) |
//!
//! Only the CPU has a version. [`LatentProjections::require_cpu`] refuses other devices with
//! [`KernelError::CpuOnly`], so the operations never meet a GPU.

pub(crate) mod cpu;
#[cfg(feature = "gpu")]
pub(crate) mod cube;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;

use burn::backend::Dispatch;
use burn::tensor::{Device, Tensor};

use crate::device::Place;
use crate::hot_ops::HotOps;
use crate::{KernelError, LinearWeight, RotaryTable, WeightVector};

const WHAT: &str = "latent attention";

/// The matrices of each head, and the sizes of heads.
#[derive(Debug)]
pub struct LatentProjections {
    /// `K_hᵀ`, `[rank, nope]` each.
    keys: Vec<LinearWeight>,
    /// `V_h`, `[value, rank]` each.
    values: Vec<LinearWeight>,
    nope: usize,
    rope: usize,
    rank: usize,
    value: usize,
    /// The numbers of all heads.
    heads: Vec<u32>,
}

impl LatentProjections {
    /// Takes `K_hᵀ` `[rank, nope]` and `V_h` `[value, rank]` of each head. `rope` elements of a
    /// head's queries follow the first `nope`.
    ///
    /// # Errors
    /// No heads, shapes that differ or do not fit, an odd `rope`, or [`KernelError::CpuOnly`] for
    /// weights on a GPU.
    pub fn new(
        keys: Vec<LinearWeight>,
        values: Vec<LinearWeight>,
        rope: usize,
    ) -> Result<Self, KernelError> {
        let (Some(key), Some(value)) = (keys.first(), values.first()) else {
            return Err(KernelError::OutOfRange {
                what: WHAT,
                field: "number of heads".to_owned(),
                got: 0,
                accepted: "at least 1".to_owned(),
            });
        };
        let (rank, nope, value) = (key.out_features(), key.in_features(), value.out_features());
        KernelError::require_len(WHAT, "values", values.len(), keys.len())?;
        require_shapes("keys", &keys, [rank, nope])?;
        require_shapes("values", &values, [value, rank])?;
        let is_pairs = rope > 0 && rope.is_multiple_of(2);
        KernelError::require(is_pairs, WHAT, "rope", rope as u64, "even, at least 2")?;
        let heads = (0..keys.len() as u32).collect();
        Ok(Self { keys, values, nope, rope, rank, value, heads })
    }

    /// Succeeds on the CPU. A loader calls it before it reads weights.
    ///
    /// # Errors
    /// [`KernelError::CpuOnly`] for every other device.
    pub fn require_cpu(device: &Device) -> Result<(), KernelError> {
        match Place::of(device, WHAT)? {
            Place::Cpu => Ok(()),
            #[cfg(feature = "gpu")]
            Place::Cube(device) => Err(KernelError::cpu_only(WHAT, &device)),
        }
    }

    /// Returns the bytes of weights that lie in a mapped file.
    #[must_use]
    pub fn mapped_bytes(&self) -> usize {
        self.keys.iter().chain(&self.values).map(LinearWeight::mapped_bytes).sum()
    }

    fn num_heads(&self) -> usize {
        self.heads.len()
    }
}

/// The norm of a token's latent: HF `kv_a_layernorm`.
#[derive(Debug)]
pub struct LatentNorm {
    /// `[rank]`
    pub weight: WeightVector,
    /// The number added to the mean square.
    pub eps: f32,
}

/// Fails unless all weights have `shape` and are on the CPU.
fn require_shapes(
    field: &str,
    weights: &[LinearWeight],
    [outputs, inputs]: [usize; 2],
) -> Result<(), KernelError> {
    for (head, weight) in weights.iter().enumerate() {
        for (name, got, expected) in [
            ("out_features", weight.out_features(), outputs),
            ("in_features", weight.in_features(), inputs),
        ] {
            let field = format!("{name} of {field}[{head}]");
            KernelError::require(got == expected, WHAT, field, got as u64, expected.to_string())?;
        }
        if !weight.is_on_cpu() {
            return Err(KernelError::CpuOnly { what: WHAT, device: "gpu".to_owned() });
        }
    }
    Ok(())
}

/// Returns the queries of the latent attention, from q `[num_tokens, num_heads * (nope + rope)]`.
/// The result is `[num_tokens, num_heads * (rank + rope)]`.
///
/// # Panics
/// If the width of `q` is not that of the heads, or the table is not for `rope` elements. Also
/// where [`rope`](crate::rope()) panics.
#[must_use]
pub fn latent_queries(
    q: Tensor<2>,
    projections: &LatentProjections,
    positions: &[u32],
    table: &RotaryTable,
) -> Tensor<2> {
    let q = Dispatch::latent_queries(q.into_dispatch(), projections, positions, table);
    Tensor::from_dispatch(q)
}

/// Returns the keys of the latent attention, from kv `[num_tokens, rank + rope]`. The first `rank`
/// elements are normalised, and the others rotated.
///
/// # Panics
/// If the width of `kv` is not that of the norm and the table. Also where [`rope`](crate::rope())
/// panics.
#[must_use]
pub fn latent_keys(
    kv: Tensor<2>,
    norm: &LatentNorm,
    positions: &[u32],
    table: &RotaryTable,
) -> Tensor<2> {
    Tensor::from_dispatch(Dispatch::latent_keys(kv.into_dispatch(), norm, positions, table))
}

/// Returns the values of all heads, `[num_tokens, num_heads * value]`, from the weighted sums of
/// latents `[num_tokens, num_heads * rank]`.
///
/// # Panics
/// If the width of `latents` is not that of the heads.
#[must_use]
pub fn latent_values(latents: Tensor<2>, projections: &LatentProjections) -> Tensor<2> {
    Tensor::from_dispatch(Dispatch::latent_values(latents.into_dispatch(), projections))
}
