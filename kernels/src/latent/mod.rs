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
//! On a GPU all heads have matrices of one form, in one buffer for K and one for V. One launch
//! multiplies the rows of all heads.

pub(crate) mod cpu;
#[cfg(feature = "gpu")]
pub(crate) mod cube;
#[cfg(test)]
#[cfg(feature = "gpu")]
mod cube_tests;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;

use burn::backend::Dispatch;
use burn::tensor::Tensor;

use crate::hot_ops::HotOps;
use crate::{KernelError, LinearWeight, RotaryTable, WeightVector};

const WHAT: &str = "latent attention";

/// The matrices of each head, and the sizes of heads.
#[derive(Debug)]
pub struct LatentProjections {
    sizes: Sizes,
    storage: Storage,
}

/// The number of heads, and the elements of their parts.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    heads: usize,
    nope: usize,
    rope: usize,
    rank: usize,
    value: usize,
}

/// The matrices in memory, by device.
#[derive(Debug)]
enum Storage {
    Cpu(cpu::CpuProjections),
    #[cfg(feature = "gpu")]
    Cube(Box<cube::CubeProjections>),
}

impl Storage {
    fn new(
        keys: Vec<LinearWeight>,
        values: Vec<LinearWeight>,
        is_on_cpu: bool,
    ) -> Result<Self, KernelError> {
        Ok(match is_on_cpu {
            true => Self::Cpu(cpu::CpuProjections::new(keys, values)),
            #[cfg(feature = "gpu")]
            false => Self::Cube(Box::new(cube::CubeProjections::new(keys, values)?)),
            #[cfg(not(feature = "gpu"))]
            false => unreachable!("a build without GPUs has weights on the CPU alone"),
        })
    }
}

impl LatentProjections {
    /// Takes `K_hᵀ` `[rank, nope]` and `V_h` `[value, rank]` of each head. `rope` elements of a
    /// head's queries follow the first `nope`.
    ///
    /// # Errors
    /// No heads, shapes that differ or do not fit, an odd `rope`, or weights on several devices. On
    /// a GPU also weights of different forms, or too little memory.
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
        let is_on_cpu = key.is_on_cpu();
        require_shapes("keys", &keys, [rank, nope], is_on_cpu)?;
        require_shapes("values", &values, [value, rank], is_on_cpu)?;
        let is_pairs = rope > 0 && rope.is_multiple_of(2);
        KernelError::require(is_pairs, WHAT, "rope", rope as u64, "even, at least 2")?;
        let sizes = Sizes { heads: keys.len(), nope, rope, rank, value };
        Ok(Self { sizes, storage: Storage::new(keys, values, is_on_cpu)? })
    }

    /// Takes `V_h` `[value, rank]` of each head, for [`latent_values`] alone: a matrix whose blocks
    /// on the diagonal are those of heads.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn of_values(values: Vec<LinearWeight>) -> Result<Self, KernelError> {
        let Some(value) = values.first() else {
            return Err(KernelError::OutOfRange {
                what: WHAT,
                field: "number of heads".to_owned(),
                got: 0,
                accepted: "at least 1".to_owned(),
            });
        };
        let (value, rank, is_on_cpu) =
            (value.out_features(), value.in_features(), value.is_on_cpu());
        require_shapes("values", &values, [value, rank], is_on_cpu)?;
        let sizes = Sizes { heads: values.len(), nope: 0, rope: 0, rank, value };
        Ok(Self { sizes, storage: Storage::new(Vec::new(), values, is_on_cpu)? })
    }

    /// Returns the bytes of weights that lie in a mapped file.
    #[must_use]
    pub fn mapped_bytes(&self) -> usize {
        match &self.storage {
            Storage::Cpu(projections) => projections.mapped_bytes(),
            #[cfg(feature = "gpu")]
            Storage::Cube(_) => 0,
        }
    }

    /// Returns the matrices on the CPU.
    ///
    /// # Panics
    /// If they are on a GPU.
    fn on_cpu(&self) -> &cpu::CpuProjections {
        match &self.storage {
            Storage::Cpu(projections) => projections,
            #[cfg(feature = "gpu")]
            Storage::Cube(_) => unreachable!("the matrices of heads are not on the CPU"),
        }
    }

    /// Returns the matrices on a GPU.
    ///
    /// # Panics
    /// If they are on the CPU.
    #[cfg(feature = "gpu")]
    fn on_gpu(&self) -> &cube::CubeProjections {
        match &self.storage {
            Storage::Cube(projections) => projections,
            Storage::Cpu(_) => unreachable!("the matrices of heads are not on a GPU"),
        }
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

/// Fails unless all weights have one shape and are on one device.
fn require_shapes(
    field: &str,
    weights: &[LinearWeight],
    [outputs, inputs]: [usize; 2],
    is_on_cpu: bool,
) -> Result<(), KernelError> {
    for (head, weight) in weights.iter().enumerate() {
        for (name, got, expected) in [
            ("out_features", weight.out_features(), outputs),
            ("in_features", weight.in_features(), inputs),
        ] {
            let field = format!("{name} of {field}[{head}]");
            KernelError::require(got == expected, WHAT, field, got as u64, expected.to_string())?;
        }
        if weight.is_on_cpu() != is_on_cpu {
            let field = format!("device of {field}");
            return Err(KernelError::PartsDiffer { what: WHAT, field, part: head });
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
