//! Qwen3-Next: HF `Qwen3NextForCausalLM`.
//!
//! Three layers of four have a gated delta rule (<https://arxiv.org/abs/2412.06464>) in place of
//! attention. The others multiply the output of attention by a gate. All have experts, and one
//! expert of all tokens. Modules whose names begin with `mtp` predict several tokens a step. Only
//! `draft_heads` reads them.

use super::{
    Bias, ConfigError, Defaults, DeltaNetConfig, DeltaNetModules, Family, Fields, HeadNormRule,
    LayerConfig, LayerRule, MixerKind, ModelConfig, MoeConfig, MtpForm, NormKind, NormRule,
    PositionRule, RecurrentConfig, SharedExpert, StateLayers, WeightNames, llama, qwen2_moe,
};

pub(super) const FAMILY: Family = Family {
    architecture: "Qwen3NextForCausalLM",
    model_type: "qwen3_next",
    models: "Qwen3-Next-80B-A3B",
    defaults: Defaults {
        num_key_value_heads: Some(2),
        head_dim: Some(256),
        intermediate_size: Some(5_632),
        max_position_embeddings: 32_768,
        ..llama::DEFAULTS
    },
    qkv_bias: Bias::IfSet("attention_bias"),
    o_bias: Bias::IfSet("attention_bias"),
    mlp_bias: Bias::Never,
    layers: LayerRule::Own(|fields, family, positions| {
        layers(fields, family, positions, DeltaNetModules::ByHead)
    }),
    mixers: &[MixerKind::Attention, MixerKind::DeltaNet],
    norm: NormRule { kind: NormKind::RmsPlusOne, ..llama::FAMILY.norm },
    head_norm: HeadNormRule::RmsPlusOne,
    positions: PositionRule::Rotary { is_interleaved: false, percent: 25 },
    rope: llama::PARTIAL_ROPE,
    names: WeightNames { moe: qwen2_moe::FAMILY.names.moe, ..llama::WITH_HEAD_NORMS },
    mtp: MtpForm::Beside,
    adjust,
    ..llama::FAMILY
};

/// Reads the layers: those with attention, which have gates, and those with a delta rule.
pub(super) fn layers(
    fields: &Fields,
    family: &Family,
    max_position_embeddings: usize,
    modules: DeltaNetModules,
) -> Result<Vec<LayerConfig>, ConfigError> {
    let interval = fields.size("full_attention_interval")?.unwrap_or(4);
    let by_default = |layer: usize| !(layer + 1).is_multiple_of(interval);
    let states = StateLayers { name: "linear_attention", by_default: &by_default };
    let delta_net = |_, layer: &LayerConfig| {
        let config = DeltaNetConfig::read(fields, layer.activation(), modules)?;
        Ok(RecurrentConfig::DeltaNet(config))
    };
    let mut layers = states.read(fields, family, max_position_embeddings, delta_net)?;
    let attentions = layers.iter_mut().filter_map(|layer| layer.mixer.attention_mut());
    attentions.for_each(|attention| attention.has_gate = true);
    Ok(layers)
}

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    // Without experts, all layers are dense.
    if fields.count("num_experts")? == Some(0) {
        return Ok(());
    }
    let moe = MoeConfig {
        num_experts: fields.size("num_experts")?.unwrap_or(512),
        top_k: fields.size("num_experts_per_tok")?.unwrap_or(10),
        renormalize: fields.flag("norm_topk_prob")?.unwrap_or(true),
        ..experts(fields, config)?
    };
    config.set_experts(fields, &moe, qwen2_moe::sparse_layers(fields)?)
}

/// Reads the widths of experts, and of the expert of all tokens.
pub(super) fn experts(fields: &Fields, config: &ModelConfig) -> Result<MoeConfig, ConfigError> {
    // No window is in HF's classes, nor in published models.
    if fields.flag("use_sliding_window")?.unwrap_or(false) {
        return Err(fields.invalid("use_sliding_window", "false"));
    }
    Ok(MoeConfig {
        intermediate_size: fields.size("moe_intermediate_size")?.unwrap_or(512),
        shared: Some(SharedExpert {
            intermediate_size: fields.size("shared_expert_intermediate_size")?.unwrap_or(512),
            has_gate: true,
        }),
        ..qwen2_moe::common(fields, config)?
    })
}
