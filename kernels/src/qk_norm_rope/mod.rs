//! The operation after the product that computes queries, keys and values. It separates the three.
//! It normalises the heads of queries and keys (see [`HeadNorm`]). It limits all three, if the
//! model does that (`clip_qkv` of HF `OlmoeAttention`). It rotates queries and keys by their
//! positions, if the layer has positions.
//!
//! The results have the same bytes as those of one operation after the other:
//! [`rms_norm`](crate::rms_norm()) or [`layer_norm`](crate::layer_norm()) over each head or row,
//! then [`clamp`](crate::clamp()), then [`rope`](crate::rope()). All f32: qkv
//! `[num_tokens, q_size + 2 · kv_size]`, results `[num_tokens, q_size]` and twice
//! `[num_tokens, kv_size]`. Bytes moved: `8 · qkv.len()`.
//!
//! [`qk_norm_rope_and_cache`] also writes keys and values to the KV cache, with the bytes of
//! [`reshape_and_cache`](crate::reshape_and_cache()). On a GPU both are one kernel, if the norms
//! are of each head alone and before the rotation.

pub(crate) mod cpu;
#[cfg(feature = "gpu")]
pub(crate) mod cube;
#[cfg(test)]
mod tests;

use std::ops::Range;

use burn::backend::Dispatch;
use burn::tensor::Tensor;

use crate::hot_ops::HotOps;
use crate::{KvLayer, RotaryTable, WeightVector};

/// The heads of a layer, side by side: queries, keys, values.
#[derive(Debug)]
pub struct QkvHeads {
    /// Number of query heads.
    pub num_heads: usize,
    /// Number of key heads, and of value heads.
    pub num_kv_heads: usize,
    /// Number of elements of a head.
    pub head_dim: usize,
    /// The norm of queries.
    pub q_norm: Option<HeadNorm>,
    /// The norm of keys.
    pub k_norm: Option<HeadNorm>,
    /// Whether both are rotated before they are normalised.
    pub norms_after_rope: bool,
    /// The addend to mean squares in both norms.
    pub eps: f32,
    /// The limit `±clip` of queries, keys and values, after a norm and before their rotation.
    pub clip: Option<f32>,
}

/// The norm of the queries of a token, or of its keys.
#[derive(Debug)]
pub enum HeadNorm {
    /// A root-mean-square norm of each head alone, all with the same weight `[head_dim]` (HF
    /// `Qwen3Attention`).
    Rms(WeightVector),
    /// One root-mean-square norm over all heads together, weight `[heads · head_dim]` (HF
    /// `Olmo2Attention`).
    RmsAcrossHeads(WeightVector),
    /// A layer norm of each head alone, without a bias. Each head has its part of the weight
    /// `[heads · head_dim]` (HF `CohereAttention`, `StableLmAttention`).
    Layer(WeightVector),
    /// A layer norm of each head alone, all with the same weight and bias, `[head_dim]` each (HF
    /// `PhiAttention`, `PersimmonAttention`).
    LayerBiased {
        /// The factors of a head's elements.
        weight: WeightVector,
        /// The addends.
        bias: WeightVector,
    },
    /// A root-mean-square norm of each head alone, without a weight (HF `Llama4TextL2Norm`).
    Unit,
}

impl HeadNorm {
    /// Asserts that the weight fits heads of `dim` elements, `size` together.
    fn check(&self, dim: usize, size: usize) {
        let (weight, expected) = match self {
            Self::Rms(weight) => (weight, dim),
            Self::RmsAcrossHeads(weight) | Self::Layer(weight) => (weight, size),
            Self::LayerBiased { weight, bias } => {
                assert_eq!(bias.len(), dim, "qk_norm_rope: length of a norm's bias");
                (weight, dim)
            }
            Self::Unit => return,
        };
        assert_eq!(weight.len(), expected, "qk_norm_rope: length of a norm");
    }
}

impl QkvHeads {
    /// Returns the elements of a token's queries.
    #[must_use]
    pub fn q_size(&self) -> usize {
        self.num_heads * self.head_dim
    }

    /// Returns the elements of a token's keys, and of its values.
    #[must_use]
    pub fn kv_size(&self) -> usize {
        self.num_kv_heads * self.head_dim
    }

    /// Returns whether queries, keys and values stay as the product made them.
    pub(crate) fn are_ready(&self, table: Option<&RotaryTable>) -> bool {
        self.q_norm.is_none() && self.k_norm.is_none() && self.clip.is_none() && table.is_none()
    }

    /// Returns the columns of queries, keys and values.
    pub(crate) fn columns(&self) -> [Range<usize>; 3] {
        let (q, kv) = (self.q_size(), self.kv_size());
        [0..q, q..q + kv, q + kv..q + 2 * kv]
    }

    /// Asserts the conditions of [`qk_norm_rope`] on its arguments.
    pub(crate) fn check(
        &self,
        [tokens, width]: [usize; 2],
        positions: &[u32],
        table: Option<&RotaryTable>,
    ) {
        let (q, kv, dim) = (self.q_size(), self.kv_size(), self.head_dim);
        assert_eq!(width, q + 2 * kv, "qk_norm_rope: width of qkv, {q} and twice {kv}");
        for (norm, size) in [(&self.q_norm, q), (&self.k_norm, kv)] {
            if let Some(norm) = norm {
                norm.check(dim, size);
            }
        }
        match table {
            Some(table) => crate::rope::check([tokens, q + kv], positions, dim, table),
            None => assert_eq!(tokens, positions.len(), "qk_norm_rope: one position a token"),
        }
    }
}

/// Returns queries, keys and values of qkv, `[num_tokens, q_size + 2 * kv_size]`. Queries and keys
/// are normalised, and rotated if there is a table. A layer without positions has none.
///
/// # Panics
/// If the width of `qkv` is not that of the heads, or a norm's weight does not fit them. Also where
/// [`rope`](crate::rope()) panics.
#[must_use]
pub fn qk_norm_rope(
    qkv: Tensor<2>,
    heads: &QkvHeads,
    positions: &[u32],
    table: Option<&RotaryTable>,
) -> (Tensor<2>, Tensor<2>, Tensor<2>) {
    let (q, k, v) = Dispatch::qk_norm_rope(qkv.into_dispatch(), heads, positions, table);
    (Tensor::from_dispatch(q), Tensor::from_dispatch(k), Tensor::from_dispatch(v))
}

/// Does what [`qk_norm_rope`] does, writes keys and values to the slots of `layer`, and returns the
/// queries, `[num_tokens, q_size]`. Recordings of times have both parts by their names
/// `qk_norm_rope` and `kv_write`, or the first name alone where they are one kernel.
///
/// # Panics
/// Where [`qk_norm_rope`] or [`reshape_and_cache`](crate::reshape_and_cache()) panics.
#[must_use]
pub fn qk_norm_rope_and_cache(
    qkv: Tensor<2>,
    heads: &QkvHeads,
    positions: &[u32],
    table: Option<&RotaryTable>,
    layer: &mut KvLayer,
    slot_mapping: &[u32],
) -> Tensor<2> {
    let qkv = qkv.into_dispatch();
    let q = Dispatch::qk_norm_rope_and_cache(qkv, heads, positions, table, layer, slot_mapping);
    Tensor::from_dispatch(q)
}
