//! Grouped-query attention over the paged KV cache (HF `LlamaAttention`, and `Qwen3Attention` where
//! the heads are normed; <https://arxiv.org/abs/2305.13245>).

use std::sync::Arc;

use burn::tensor::Tensor;
use playhouse_kernels::{
    AttentionMetadata, AttentionParams, KvLayer, QkvHeads, RotaryTable, paged_attention,
    profile::timed, qk_norm_rope, reshape_and_cache,
};

use super::Linear;
use super::rotary::RotaryTables;
use crate::model::ModelError;
use crate::model::config::ModelConfig;
use crate::model::family::WeightNames;
use crate::model::load::WeightLoader;

/// Attention of one layer.
#[derive(Debug)]
pub(in crate::model) struct Attention {
    qkv_proj: Linear,
    heads: QkvHeads,
    o_proj: Linear,
    rotary: Arc<RotaryTable>,
    params: AttentionParams,
}

impl Attention {
    /// From and to `[num_tokens, hidden]`; writes the keys and values of these tokens into `kv`.
    pub(in crate::model) fn forward(
        &self,
        x: Tensor<2>,
        meta: &AttentionMetadata,
        kv: &mut KvLayer,
    ) -> Tensor<2> {
        let qkv = timed("qkv", || self.qkv_proj.forward(x));
        let (q, k, v) =
            timed("qk_norm_rope", || qk_norm_rope(qkv, &self.heads, &meta.positions, &self.rotary));
        timed("kv_write", || reshape_and_cache(k, v, kv, &meta.slot_mapping));
        let output = timed("attention", || paged_attention(q, kv, meta, &self.params));
        timed("o", || self.o_proj.forward(output))
    }

    /// Bytes of weights that are pages of a file.
    pub(in crate::model) fn mapped_bytes(&self) -> u64 {
        self.qkv_proj.mapped_bytes() + self.o_proj.mapped_bytes()
    }

    /// Loads the attention of layer `index`, whose tensors start with `prefix`.
    pub(in crate::model) fn load(
        loader: &mut WeightLoader<'_>,
        config: &ModelConfig,
        names: &WeightNames,
        prefix: &str,
        index: usize,
        rotary: &mut RotaryTables<'_>,
    ) -> Result<Self, ModelError> {
        let ModelConfig { hidden_size, head_dim, .. } = *config;
        let q_size = config.num_attention_heads * head_dim;
        let kv_size = config.num_key_value_heads * head_dim;
        let module = |name: &str| format!("{prefix}.{name}");
        let qkv = [(names.q_proj, q_size), (names.k_proj, kv_size), (names.v_proj, kv_size)]
            .map(|(name, size)| (module(name), size));
        let o = [(module(names.o_proj), hidden_size)];
        let head_norm = |loader: &mut WeightLoader<'_>, name: Option<&str>| {
            let weight = |name| [(format!("{}.weight", module(name)), head_dim)];
            name.map(|name| loader.vector(&weight(name))).transpose()
        };
        Ok(Self {
            heads: QkvHeads {
                num_heads: config.num_attention_heads,
                num_kv_heads: config.num_key_value_heads,
                head_dim,
                q_norm: head_norm(loader, names.q_norm)?,
                k_norm: head_norm(loader, names.k_norm)?,
                eps: config.rms_norm_eps,
            },
            qkv_proj: Linear::load(loader, &qkv, hidden_size, config.qkv_bias)?,
            o_proj: Linear::load(loader, &o, q_size, config.o_bias)?,
            rotary: rotary.of_layer(index)?,
            params: AttentionParams {
                num_heads: config.num_attention_heads,
                scale: (head_dim as f32).sqrt().recip(),
                sliding_window: config.layers[index].sliding_window,
                soft_cap: None,
                tensor_cores: loader.tensor_cores(),
            },
        })
    }
}
