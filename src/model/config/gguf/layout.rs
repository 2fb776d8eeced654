//! The layout of a GGUF file: the names of its tensors (`TensorNameMap` of the `gguf` package), and
//! the changes that llama.cpp's converter makes to their values.

use std::sync::Arc;

use super::architecture::Architecture;
use super::with_states::SECTIONS;
use crate::gguf::{GgufError, GgufFile};
use crate::model::config::{
    AttentionConfig, DeltaNetModules, FeedForward, LayerConfig, Mixer, ModelConfig,
    RecurrentConfig, RopeParameters, TokenTypes,
};
use crate::model::family::{
    AttentionNames, ExpertNames, Family, HeadNormRule, KvNames, LatentNames, LayerNorms, MlpNames,
    MoeNames, NormKind, PositionRule, QkvNames, WeightNames,
};

/// The layout of one file.
#[derive(Debug, Clone)]
pub(in crate::model::config) struct Layout {
    names: WeightNames,
    latent: &'static LatentNames,
    /// Whether a delta rule's projections are one module, as in older files.
    is_delta_net_by_head: bool,
    is_interleaved: bool,
    is_permuted_whole: bool,
    is_multiplied: bool,
    qkv_bias: bool,
    o_bias: bool,
    mlp_bias: bool,
    down_bias: bool,
    /// Whether texts of a pair have different types.
    has_token_types: bool,
    /// Layers after the last, which predict several tokens a step.
    num_nextn_layers: usize,
}

/// The table of the biases of scores by distances.
const DISTANCE_BIASES: &str = "enc.blk.0.attn_rel_b";

/// The reason why an adapter does not fit such a file.
const MULTIPLIED: &str = "the weights of this GGUF file are multiplied by factors of the model, \
                          which the file does not have; load the model's folder instead";

/// The same for another order of columns.
const IN_TURNS: &str = "the delta rules of this GGUF file have their heads in another order than \
                        the model's folder; load the folder instead";

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
    attention_norm: None,
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
        latent: ["ffn_latent_down", "ffn_latent_up"],
        output_bias: "",
    },
    mamba: "mamba",
    norm: "output_norm",
    lm_head: "output",
    is_transposed: false,
    is_gate_last: false,
    layers_are_pairs: false,
    in_adapters: &[],
    renamed: RENAMED,
    place: None,
};

/// The names of mixers that carry a state, of indexers, and of the decoders of Gemma 3n and 4.
const RENAMED: &[(&str, &str)] = &[
    ("self_attn.qkv_proj", "attn_qkv"),
    ("self_attn.norm", "attn_norm_2"),
    ("self_attn.output_gate", "attn_gate"),
    ("self_attn.out_proj", "attn_output"),
    ("conv.conv", "shortconv.conv"),
    ("conv.in_proj", "shortconv.in_proj"),
    ("conv.out_proj", "shortconv.out_proj"),
    ("linear_attn.in_proj_qkv", "attn_qkv"),
    ("linear_attn.in_proj_z", "attn_gate"),
    ("linear_attn.in_proj_qkvz", "ssm_in"),
    ("linear_attn.in_proj_ba", "ssm_ba"),
    ("linear_attn.in_proj_b", "ssm_beta"),
    ("linear_attn.in_proj_a", "ssm_alpha"),
    ("linear_attn.conv1d", "ssm_conv1d"),
    ("linear_attn.A_log", "ssm_a"),
    ("linear_attn.dt_bias", "ssm_dt.bias"),
    ("linear_attn.norm", "ssm_norm"),
    ("linear_attn.out_proj", "ssm_out"),
    ("mamba.in_proj", "ssm_in"),
    ("mamba.conv1d", "ssm_conv1d"),
    ("mamba.x_proj", "ssm_x"),
    ("mamba.dt_proj", "ssm_dt"),
    ("mamba.dt_layernorm", "ssm_dt_norm"),
    ("mamba.b_layernorm", "ssm_b_norm"),
    ("mamba.c_layernorm", "ssm_c_norm"),
    ("mamba.A_log", "ssm_a"),
    ("mamba.D", "ssm_d"),
    ("mamba.dt_bias", "ssm_dt.bias"),
    ("mamba.norm", "ssm_norm"),
    ("mamba.out_proj", "ssm_out"),
    ("self_attn.indexer.wq_b", "indexer.attn_q_b"),
    ("self_attn.indexer.wk", "indexer.attn_k"),
    ("self_attn.indexer.k_norm", "indexer.k_norm"),
    ("self_attn.indexer.k_norm.bias", "indexer.k_norm.bias"),
    ("self_attn.indexer.weights_proj", "indexer.proj"),
    ("input_layernorm", "attn_norm"),
    ("post_attention_layernorm", "post_attention_norm"),
    ("pre_feedforward_layernorm", "ffn_norm"),
    ("post_feedforward_layernorm", "post_ffw_norm"),
    ("post_feedforward_layernorm_1", "post_ffw_norm_1"),
    ("pre_feedforward_layernorm_2", "pre_ffw_norm_2"),
    ("post_feedforward_layernorm_2", "post_ffw_norm_2"),
    ("router.scale", "ffn_gate_inp.scale"),
    ("router.per_expert_scale", "ffn_down_exps.scale"),
    ("layer_scalar", "layer_output_scale.weight"),
    ("model.embed_tokens_per_layer", "per_layer_token_embd"),
    ("model.per_layer_model_projection", "per_layer_model_proj"),
    ("model.per_layer_projection_norm", "per_layer_proj_norm"),
    ("per_layer_input_gate", "inp_gate"),
    ("per_layer_projection", "proj"),
    ("post_per_layer_input_norm", "post_norm"),
    ("model.altup_projections", "altup_proj"),
    ("model.altup_unembed_projections", "altup_unembd_proj"),
    ("altup.modality_router", "altup_router"),
    ("altup.router_norm", "altup_router_norm"),
    ("altup.prediction_coefs", "altup_predict_coef"),
    ("altup.correction_coefs", "altup_correct_coef"),
    ("altup.correct_output_scale", "altup_correct_scale.weight"),
    ("laurel.linear_left", "laurel_l"),
    ("laurel.linear_right", "laurel_r"),
    ("laurel.post_laurel_norm", "laurel_post_norm"),
];

/// The names of latent attention.
const LATENT: LatentNames = LatentNames {
    q_proj: "attn_q",
    q_a_proj: "attn_q_a",
    q_a_norm: "attn_q_a_norm",
    q_b_proj: "attn_q_b",
    kv_a_proj: "attn_kv_a_mqa",
    kv_a_norm: "attn_kv_a_norm",
    kv_b_proj: KvNames::One("attn_kv_b"),
};

/// Those of files with the matrices of each head, as llama.cpp's converter has made since 2025.
const LATENT_HALVES: LatentNames =
    LatentNames { kv_b_proj: KvNames::Halves(["attn_k_b", "attn_v_b"]), ..LATENT };

impl Layout {
    /// Returns the layout of `file`. Its tensors show which projections are one matrix, and which
    /// have biases.
    ///
    /// # Errors
    /// The number of layers after the last is no number.
    pub(super) fn of(file: &GgufFile, architecture: &Architecture) -> Result<Self, GgufError> {
        let nextn = file.unsigned(&format!("{}.nextn_predict_layers", architecture.name))?;
        let num_nextn_layers = nextn.unwrap_or(0) as usize;
        let layers = architecture.layers;
        let has = |module: &str, part: &str| {
            let end = format!("{module}.{part}");
            let mut tensors = file.tensors();
            tensors.any(|(name, _)| within_layer(name, layers) == Some(&*end))
        };
        let mut names = WeightNames { layer: layers, norms: architecture.norms, ..NAMES };
        if has("attn_o", "weight") {
            names.attention.o_proj = "attn_o";
            names.norm = "enc.output_norm";
        }
        // Where some layers have attention, it is the module of a delta rule in the others.
        if has("attn_qkv", "weight") && !has("attn_q", "weight") {
            names.attention.qkv = QkvNames::Stacked("attn_qkv");
        }
        if !has("ffn_gate", "weight") {
            names.mlp.inner = &["ffn_up"];
        }
        if !has("ffn_gate_shexp", "weight") {
            names.moe.shared.inner = &["ffn_up_shexp"];
        }
        if !has("ffn_gate_exps", "weight") {
            let inner = &["ffn_up_exps"];
            names.moe.experts = ExpertNames::Stacked { inner, down_proj: "ffn_down_exps" };
        }
        if has("ffn_gate_up_exps", "weight") {
            let inner = &["ffn_gate_up_exps"];
            names.moe.experts = ExpertNames::Stacked { inner, down_proj: "ffn_down_exps" };
        }
        let is_bias = |name: &str| name.starts_with("blk.") && name.ends_with(".exp_probs_b");
        if file.tensors().any(|(name, _)| is_bias(name)) {
            names.moe.correction_bias = "exp_probs_b";
        }
        // MiniMax-Text-01 has the name for a norm of lightning attention.
        if has("attn_norm_2", "weight") && !has("ffn_norm", "weight") {
            names.norms.before_attention = Some("attn_norm_2");
            names.norms.before_mlp = Some("attn_norm");
        }
        let has_tensor = |name: &str| file.tensor(name).is_some();
        // LFM2's files call the last norm by another name.
        if !has_tensor("output_norm.weight") && has_tensor("token_embd_norm.weight") {
            names.norm = "token_embd_norm";
        }
        // Where a position has several axes, the converter separates neighbours into halves.
        let has_axes = file.has(&format!("{}.{}", architecture.name, SECTIONS.name));
        let latent = if has("attn_k_b", "weight") { &LATENT_HALVES } else { &LATENT };
        Ok(Self {
            names,
            latent,
            is_delta_net_by_head: !has("attn_gate", "weight"),
            is_interleaved: architecture.is_interleaved && !has_axes,
            is_permuted_whole: architecture.is_permuted_whole,
            is_multiplied: architecture.is_multiplied,
            qkv_bias: has("attn_q", "bias") || has("attn_qkv", "bias"),
            o_bias: has("attn_output", "bias"),
            mlp_bias: has("ffn_up", "bias"),
            down_bias: has("ffn_down", "bias"),
            has_token_types: file.tensor("token_types.weight").is_some(),
            num_nextn_layers,
        })
    }

    /// Changes `config`, which describes a Hugging Face model, to describe this file.
    pub(in crate::model::config) fn apply(&self, config: &mut ModelConfig) {
        let mut original = config.clone();
        // The converter changes the rows of layers without rotation, too.
        if self.is_interleaved && !pairs_neighbours(config.family) {
            let fixed = original.attentions().filter(|attention| attention.rope.is_none());
            fixed.for_each(|attention| attention.joins_halves = true);
        }
        config.original = Some(Arc::new(original));
        config.names = self.names;
        if let QkvNames::Gated { .. } = config.family.names.attention.qkv {
            let qkv = ["attn_q", "attn_k", "attn_v"];
            config.names.attention.qkv = QkvNames::Gated { qkv, gate: "attn_gate" };
        }
        config.num_nextn_layers = self.num_nextn_layers;
        // As llama.cpp, which multiplies with the output layer as the file has it.
        config.unit_head = None;
        let types = config.embedding.token_types.filter(|_| self.has_token_types);
        config.embedding.token_types =
            types.map(|types| TokenTypes { module: "token_types", ..types });
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
            kind @ (NormKind::RmsUnweighted
            | NormKind::Length
            | NormKind::Layer { .. }
            | NormKind::LayerUnweighted) => kind,
        };
        if config.gemma4.is_some() {
            // The MLP beside experts has the names of any other.
            config.names.moe.shared = config.names.mlp;
        }
        if let Some(altup) = &mut config.altup {
            altup.is_stacked = true;
        }
        let mut refused = self.is_multiplied.then_some(MULTIPLIED);
        for LayerConfig { mixer, feed_forward } in &mut config.layers {
            if let Some(attention) = mixer.attention_mut() {
                self.apply_to(attention);
                attention.part_halves(self.is_permuted_whole);
            }
            if let Mixer::Recurrent(RecurrentConfig::DeltaNet(config)) = mixer
                && !self.is_delta_net_by_head
            {
                match config.modules {
                    DeltaNetModules::ByKind => config.heads_take_turns = true,
                    _ => config.modules = DeltaNetModules::GatesByHead,
                }
                if config.takes_turns() {
                    refused = Some(IN_TURNS);
                }
            }
            if let Mixer::Latent(latent) = mixer {
                latent.names = self.latent;
                latent.rope.is_interleaved = self.is_interleaved;
            }
            if let FeedForward::Mlp(mlp) = feed_forward {
                (mlp.bias, mlp.down_bias) = (self.mlp_bias, self.down_bias);
            }
        }
        config.adapters_refused = refused;
    }

    fn apply_to(&self, attention: &mut AttentionConfig) {
        attention.qkv_bias = self.qkv_bias;
        attention.o_bias = self.o_bias;
        attention.sinks = attention.sinks.map(|_| "attn_sinks.weight");
        if let Some(biases) = &mut attention.distance_biases {
            biases.module = DISTANCE_BIASES;
        }
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

/// Returns the name of a tensor within its layer.
fn within_layer<'n>(name: &'n str, layers: &str) -> Option<&'n str> {
    let (_, name) = name.strip_prefix(layers)?.strip_prefix('.')?.split_once('.')?;
    Some(name)
}

impl AttentionConfig {
    /// Sets the order of rows in a file whose whole heads are permuted, if only a part of them
    /// rotates. llama.cpp pairs neighbours in that part, which the model does not.
    fn part_halves(&mut self, is_permuted_whole: bool) {
        let head_dim = self.head_dim;
        let is_part = |rope: &&mut RopeParameters| is_permuted_whole && rope.rotary_dim < head_dim;
        let part = self.rope.as_mut().filter(is_part);
        if let Some(rope) = part {
            rope.is_interleaved = false;
            self.parts_halves = true;
        }
    }
}

/// Returns whether a folder of the family has rotary pairs as neighbours already.
fn pairs_neighbours(family: &Family) -> bool {
    matches!(family.positions, PositionRule::Rotary { is_interleaved: true, .. })
}
