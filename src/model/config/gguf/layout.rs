//! The layout of a GGUF file: the names of its tensors (`TensorNameMap` of the `gguf` package), and
//! the changes that llama.cpp's converter makes to their values.

use super::architecture::Architecture;
use crate::gguf::GgufFile;
use crate::model::config::{AttentionConfig, FeedForward, LayerConfig, ModelConfig};
use crate::model::family::{
    AttentionNames, ExpertNames, HeadNormRule, LayerNorms, MlpNames, MoeNames, NormKind, QkvNames,
    WeightNames,
};

/// The layout of one file.
#[derive(Debug, Clone)]
pub(in crate::model::config) struct Layout {
    names: WeightNames,
    is_interleaved: bool,
    qkv_bias: bool,
    o_bias: bool,
    mlp_bias: bool,
}

const NAMES: WeightNames = WeightNames {
    embed_tokens: "token_embd",
    embed_positions: "position_embd",
    embed_norm: "token_embd_norm",
    layer: "blk",
    norms: LayerNorms {
        before_attention: None,
        after_attention: None,
        before_mlp: None,
        after_mlp: None,
    },
    attention: AttentionNames {
        qkv: QkvNames::Separate(["attn_q", "attn_k", "attn_v"]),
        q_norm: Some("attn_q_norm"),
        k_norm: Some("attn_k_norm"),
        o_proj: "attn_output",
    },
    mlp: MlpNames { inner: &["ffn_gate", "ffn_up"], down_proj: "ffn_down" },
    moe: MoeNames {
        router: "ffn_gate_inp",
        correction_bias: "exp_probs_b.bias",
        experts: ExpertNames::Stacked {
            inner: &["ffn_gate_exps", "ffn_up_exps"],
            down_proj: "ffn_down_exps",
        },
        shared: MlpNames {
            inner: &["ffn_gate_shexp", "ffn_up_shexp"],
            down_proj: "ffn_down_shexp",
        },
        shared_gate: "ffn_gate_inp_shexp",
        latent: [""; 2],
    },
    mamba: "",
    norm: "output_norm",
    lm_head: "output",
    is_transposed: false,
    place: None,
};

impl Layout {
    /// Returns the layout of `file`. Its tensors show which projections are one matrix, and which
    /// have biases.
    pub(super) fn of(file: &GgufFile, architecture: &Architecture) -> Self {
        let has = |module: &str, part: &str| {
            let mut tensors = file.tensors().map(|(name, _)| name.strip_prefix("blk."));
            let end = format!("{module}.{part}");
            tensors.any(|name| {
                name.and_then(|name| name.split_once('.')).is_some_and(|(_, n)| n == end)
            })
        };
        let mut names = WeightNames { norms: architecture.norms, ..NAMES };
        if has("attn_qkv", "weight") {
            names.attention.qkv = QkvNames::Stacked("attn_qkv");
        }
        if !has("ffn_gate", "weight") {
            names.mlp.inner = &["ffn_up"];
        }
        if !has("ffn_gate_shexp", "weight") {
            names.moe.shared.inner = &["ffn_up_shexp"];
        }
        if has("ffn_gate_up_exps", "weight") {
            let inner = &["ffn_gate_up_exps"];
            names.moe.experts = ExpertNames::Stacked { inner, down_proj: "ffn_down_exps" };
        }
        if has("attn_norm_2", "weight") {
            names.norms.before_attention = Some("attn_norm_2");
            names.norms.before_mlp = Some("attn_norm");
        }
        Self {
            names,
            is_interleaved: architecture.is_interleaved,
            qkv_bias: has("attn_q", "bias") || has("attn_qkv", "bias"),
            o_bias: has("attn_output", "bias"),
            mlp_bias: has("ffn_up", "bias"),
        }
    }

    /// Changes `config`, which describes a Hugging Face model, to describe this file.
    pub(in crate::model::config) fn apply(&self, config: &mut ModelConfig) {
        config.names = self.names;
        let LayerNorms { before_attention, after_attention, before_mlp, after_mlp } = config.norms;
        let stored = self.names.norms;
        config.norms = LayerNorms {
            before_attention: before_attention.and(stored.before_attention),
            after_attention: after_attention.and(stored.after_attention),
            before_mlp: before_mlp.and(stored.before_mlp),
            after_mlp: after_mlp.and(stored.after_mlp),
        };
        // The converter has added the one already.
        config.norm.kind = match config.norm.kind {
            NormKind::Rms | NormKind::RmsPlusOne => NormKind::Rms,
            NormKind::LayerPlusOne => NormKind::Layer { has_bias: true },
            kind @ (NormKind::Layer { .. } | NormKind::LayerUnweighted) => kind,
        };
        for LayerConfig { mixer, feed_forward } in &mut config.layers {
            if let Some(attention) = mixer.attention_mut() {
                self.apply_to(attention);
            }
            if let FeedForward::Mlp(mlp) = feed_forward {
                mlp.bias = self.mlp_bias;
            }
        }
    }

    fn apply_to(&self, attention: &mut AttentionConfig) {
        attention.qkv_bias = self.qkv_bias;
        attention.o_bias = self.o_bias;
        attention.head_norm = attention.head_norm.map(|rule| match rule {
            HeadNormRule::RmsPlusOne => HeadNormRule::Rms,
            // The norms of all heads are one tensor.
            HeadNormRule::LayerByHead => HeadNormRule::Layer,
            rule => rule,
        });
        if let Some(rope) = &mut attention.rope {
            rope.is_interleaved = self.is_interleaved;
        }
    }
}
