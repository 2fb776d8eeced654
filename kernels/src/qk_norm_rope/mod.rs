//! The operation between the product of queries, keys and values and their use. It separates the
//! three, normalises the heads of queries and keys where the model does that (HF `Qwen3Attention`),
//! and rotates both by their positions.
//!
//! The bytes are those of [`rms_norm`](crate::rms_norm()) over each head, followed by
//! [`rope`](crate::rope()). All f32: qkv `[num_tokens, q_size + 2 · kv_size]`, results
//! `[num_tokens, q_size]` and twice `[num_tokens, kv_size]`. Bytes moved: `8 · qkv.len()`.

pub(crate) mod cpu;
#[cfg(feature = "gpu")]
pub(crate) mod cube;
#[cfg(test)]
mod tests;

use std::ops::Range;

use burn::backend::Dispatch;
use burn::tensor::Tensor;

use crate::hot_ops::HotOps;
use crate::{RotaryTable, WeightVector};

/// The heads of a layer, side by side: queries, keys, values.
#[derive(Debug)]
pub struct QkvHeads {
    /// Number of query heads.
    pub num_heads: usize,
    /// Number of key heads, and of value heads.
    pub num_kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// The weight that normalises each head of queries, `[head_dim]`.
    pub q_norm: Option<WeightVector>,
    /// The weight that normalises each head of keys, `[head_dim]`.
    pub k_norm: Option<WeightVector>,
    /// The addend to mean squares in both norms.
    pub eps: f32,
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

    /// Returns the columns of queries, keys and values.
    fn columns(&self) -> [Range<usize>; 3] {
        let (q, kv) = (self.q_size(), self.kv_size());
        [0..q, q..q + kv, q + kv..q + 2 * kv]
    }

    /// Asserts the conditions of [`qk_norm_rope`] on its arguments.
    fn check(&self, [tokens, width]: [usize; 2], positions: &[u32], table: &RotaryTable) {
        let (q, kv, dim) = (self.q_size(), self.kv_size(), self.head_dim);
        assert_eq!(width, q + 2 * kv, "qk_norm_rope: width of qkv, {q} and twice {kv}");
        for norm in [&self.q_norm, &self.k_norm].into_iter().flatten() {
            assert_eq!(norm.len(), dim, "qk_norm_rope: length of a norm");
        }
        crate::rope::check([tokens, q + kv], positions, dim, table);
    }
}

/// Returns queries, keys and values of qkv, `[num_tokens, q_size + 2 * kv_size]`, with queries and
/// keys normalised and rotated.
///
/// # Panics
/// If the width of `qkv` is not that of the heads, or a norm is not as long as a head. Also where
/// [`rope`](crate::rope()) panics.
#[must_use]
pub fn qk_norm_rope(
    qkv: Tensor<2>,
    heads: &QkvHeads,
    positions: &[u32],
    table: &RotaryTable,
) -> (Tensor<2>, Tensor<2>, Tensor<2>) {
    let (q, k, v) = Dispatch::qk_norm_rope(qkv.into_dispatch(), heads, positions, table);
    (Tensor::from_dispatch(q), Tensor::from_dispatch(k), Tensor::from_dispatch(v))
}
