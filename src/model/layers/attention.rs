//! Grouped-query attention over the paged KV cache (<https://arxiv.org/abs/2305.13245>): HF
//! `LlamaAttention`, and `Qwen3Attention` with norms over heads.

use std::sync::Arc;

use burn::tensor::Tensor;
use playhouse_kernels::{
    AttentionParams, QkvHeads, RotaryTable, paged_attention, profile::timed, qk_norm_rope,
    reshape_and_cache,
};

use super::rotary::RotaryTables;
use super::{LayerPlace, Linear};
use crate::model::config::AttentionConfig;
use crate::model::weight_loader::WeightLoader;
use crate::model::{ModelError, Positions, Step};

/// The attention of one layer.
#[derive(Debug)]
pub(in crate::model) struct Attention {
    qkv_proj: Linear,
    heads: QkvHeads,
    o_proj: Linear,
    rotary: Arc<RotaryTable>,
    params: AttentionParams,
    /// The layer of the KV cache that holds its keys and values.
    kv_layer: usize,
}

impl Attention {
    /// Maps `[num_tokens, hidden]` to the same shape. Writes the keys and values of these tokens
    /// into the step's cache.
    pub(in crate::model) fn forward(
        &self,
        x: Tensor<2>,
        positions: Positions<'_>,
        step: &mut Step<'_>,
    ) -> Tensor<2> {
        let (meta, kv) = (step.meta, step.kv.layer_mut(self.kv_layer));
        let qkv = timed("qkv", || self.qkv_proj.forward(x));
        let (q, k, v) = timed("qk_norm_rope", || {
            qk_norm_rope(qkv, &self.heads, positions.in_sequence(), &self.rotary)
        });
        timed("kv_write", || reshape_and_cache(k, v, kv, &meta.slot_mapping));
        let output = timed("attention", || paged_attention(q, kv, meta, &self.params));
        timed("o", || self.o_proj.forward(output))
    }

    /// Returns the bytes of weights that are pages of a file.
    pub(in crate::model) fn mapped_bytes(&self) -> u64 {
        self.qkv_proj.mapped_bytes() + self.o_proj.mapped_bytes()
    }

    /// Loads the attention of the layer at `place`.
    pub(in crate::model) fn load(
        loader: &mut WeightLoader<'_>,
        place: LayerPlace<'_>,
        attention: &AttentionConfig,
        rotary: &mut RotaryTables<'_>,
    ) -> Result<Self, ModelError> {
        let names = &place.names().attention;
        let hidden_size = place.config.hidden_size;
        let AttentionConfig { num_heads, num_kv_heads, head_dim, .. } = *attention;
        let (q_size, kv_size) = (attention.q_size(), attention.kv_size());
        let qkv = [(names.q_proj, q_size), (names.k_proj, kv_size), (names.v_proj, kv_size)]
            .map(|(name, size)| (place.module(name), size));
        let o = [(place.module(names.o_proj), hidden_size)];
        let head_norm = |loader: &mut WeightLoader<'_>, name: Option<&str>| {
            let weight = |name| format!("{}.weight", place.module(name));
            name.map(|name| loader.vector(&weight(name), head_dim)).transpose()
        };
        Ok(Self {
            heads: QkvHeads {
                num_heads,
                num_kv_heads,
                head_dim,
                q_norm: head_norm(loader, names.q_norm)?,
                k_norm: head_norm(loader, names.k_norm)?,
                eps: place.config.rms_norm_eps,
            },
            qkv_proj: Linear::load(loader, &qkv, hidden_size, attention.qkv_bias)?,
            o_proj: Linear::load(loader, &o, q_size, attention.o_bias)?,
            rotary: rotary.of(attention)?,
            params: AttentionParams {
                num_heads,
                scale: (head_dim as f32).sqrt().recip(),
                sliding_window: attention.sliding_window,
                soft_cap: None,
                tensor_cores: loader.tensor_cores(),
            },
            kv_layer: place.index,
        })
    }
}
