//! What lies between the product that makes queries, keys and values and their use: the three apart, the
//! heads of queries and keys normed where the model does that (HF `Qwen3Attention`), and turned by
//! their positions.
//!
//! The bytes are those of [`rms_norm`](crate::rms_norm()) over each head and then
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
    /// Heads of queries.
    pub num_heads: usize,
    /// Heads of keys, and of values.
    pub num_kv_heads: usize,
    /// Elements of a head.
    pub head_dim: usize,
    /// Norms each head of queries, `[head_dim]`.
    pub q_norm: Option<WeightVector>,
    /// Norms each head of keys, `[head_dim]`.
    pub k_norm: Option<WeightVector>,
    /// Added to mean squares by either.
    pub eps: f32,
}

impl QkvHeads {
    /// Elements of a token's queries.
    #[must_use]
    pub fn q_size(&self) -> usize {
        self.num_heads * self.head_dim
    }

    /// Elements of a token's keys, and of its values.
    #[must_use]
    pub fn kv_size(&self) -> usize {
        self.num_kv_heads * self.head_dim
    }

    /// The columns of queries, keys and values.
    fn columns(&self) -> [Range<usize>; 3] {
        let (q, kv) = (self.q_size(), self.kv_size());
        [0..q, q..q + kv, q + kv..q + 2 * kv]
    }

    /// Asserts what [`qk_norm_rope`] says of its arguments.
    fn check(&self, [tokens, width]: [usize; 2], positions: &[u32], table: &RotaryTable) {
        let (q, kv, dim) = (self.q_size(), self.kv_size(), self.head_dim);
        assert_eq!(width, q + 2 * kv, "qk_norm_rope: width of qkv, {q} and twice {kv}");
        for norm in [&self.q_norm, &self.k_norm].into_iter().flatten() {
            assert_eq!(norm.len(), dim, "qk_norm_rope: length of a norm");
        }
        crate::rope::check([tokens, q + kv], positions, dim, table);
    }
}

/// Queries, keys and values of qkv, `[num_tokens, q_size + 2 * kv_size]`: queries and keys normed and
/// turned.
///
/// # Panics
/// If the width of `qkv` is not that of the heads, a norm is not as long as a head, and as
/// [`rope`](crate::rope()).
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
