//! Llama 2, 3, 3.1, 3.2, 3.3 and the many models of the same shape: HF `LlamaForCausalLM`.
//!
//! [`crate::model::decoder`] is this family's decoder. The files of the other families name their
//! differences. Meta's models have no biases. `attention_bias` and `mlp_bias` turn them on in
//! descendants.

use super::{
    AttentionNames, AxesRule, Bias, Defaults, ExpertNames, Family, HeadNormRule, LayerNorms,
    LayerRule, MixerKind, MlpNames, MlpRule, MoeNames, MtpForm, NormKind, NormRule, PositionRule,
    QkvNames, RopeRule, RotaryPart, WeightNames, WindowRule, as_read,
};

pub(in crate::model) const FAMILY: Family = Family {
    architecture: "LlamaForCausalLM",
    model_type: "llama",
    other_model_types: &[],
    models: "Llama 2, 3, 3.1, 3.2 and 3.3, and models of the same shape: Yi, SmolLM 2, TinyLlama",
    harmless_fields: &[],
    aliases: &[],
    defaults: DEFAULTS,
    qkv_bias: Bias::IfSet("attention_bias"),
    o_bias: Bias::IfSet("attention_bias"),
    mlp_bias: Bias::IfSet("mlp_bias"),
    windows: WindowRule::Never,
    latent: None,
    norm: NormRule { kind: NormKind::Rms, eps: "rms_norm_eps" },
    head_norm: HeadNormRule::Rms,
    positions: PositionRule::Rotary { is_interleaved: false, percent: 100 },
    rope: ROPE,
    mlp: MlpRule { is_gated: true, field: "hidden_act", activation: "silu" },
    is_parallel: false,
    layers: LayerRule::Alike,
    mixers: &[MixerKind::Attention],
    names: NAMES,
    other_names: None,
    mtp: MtpForm::After,
    adjust: as_read,
};

pub(super) const DEFAULTS: Defaults = Defaults {
    num_key_value_heads: None,
    head_dim: None,
    intermediate_size: None,
    max_position_embeddings: 2_048,
    tie_word_embeddings: false,
    rope_theta: 10_000.0,
    norm_eps: 1e-6,
};

pub(super) const ROPE: RopeRule = RopeRule {
    theta: "rope_theta",
    part: RotaryPart::Whole,
    sliding: None,
    longrope: None,
    axes: AxesRule::None,
};

/// The rotary embedding of a family whose `partial_rotary_factor` has an effect. An odd number of
/// elements becomes even.
pub(super) const PARTIAL_ROPE: RopeRule = RopeRule {
    part: RotaryPart::Field { name: Some("partial_rotary_factor"), rounds_up: true },
    ..ROPE
};

/// The same in a family whose HF class fails for an odd number of elements.
pub(super) const EVEN_PARTIAL_ROPE: RopeRule = RopeRule {
    part: RotaryPart::Field { name: Some("partial_rotary_factor"), rounds_up: false },
    ..ROPE
};

pub(super) const NAMES: WeightNames = WeightNames {
    embed_tokens: "model.embed_tokens",
    embed_positions: "",
    embed_norm: "",
    layer: "model.layers",
    norms: LayerNorms {
        before_attention: Some("input_layernorm"),
        after_attention: None,
        before_mlp: Some("post_attention_layernorm"),
        after_mlp: None,
    },
    attention: AttentionNames {
        qkv: QkvNames::Separate(["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"]),
        q_norm: None,
        k_norm: None,
        o_proj: "self_attn.o_proj",
    },
    attention_norm: None,
    mlp: MlpNames { inner: &["mlp.gate_proj", "mlp.up_proj"], down_proj: "mlp.down_proj" },
    moe: MOE,
    mamba: "",
    norm: "model.norm",
    lm_head: "lm_head",
    is_transposed: false,
    is_gate_last: false,
    layers_are_pairs: false,
    in_adapters: &[],
    renamed: &[],
    place: None,
};

/// The names that Qwen's mixtures of experts, and most others, have.
pub(super) const MOE: MoeNames = MoeNames {
    router: "mlp.gate",
    correction_bias: "mlp.gate.e_score_correction_bias",
    experts: ExpertNames::Each {
        module: "mlp.experts",
        inner: &["gate_proj", "up_proj"],
        down_proj: "down_proj",
    },
    shared: MlpNames {
        inner: &["mlp.shared_experts.gate_proj", "mlp.shared_experts.up_proj"],
        down_proj: "mlp.shared_experts.down_proj",
    },
    shared_gate: "mlp.shared_expert_gate",
    latent: [""; 2],
    output_bias: "",
};

/// The norms of q and k heads as most families that have them call them.
pub(super) const WITH_HEAD_NORMS: WeightNames = WeightNames {
    attention: AttentionNames {
        q_norm: Some("self_attn.q_norm"),
        k_norm: Some("self_attn.k_norm"),
        ..NAMES.attention
    },
    ..NAMES
};
