//! Jamba: HF `JambaForCausalLM`.
//!
//! Mamba in most layers, attention without positions in one of a period, and experts in every
//! other layer (<https://arxiv.org/abs/2403.19887>).

use super::{
    Bias, ConfigError, Defaults, ExpertNames, Family, Fields, LayerConfig, LayerRule, MambaConfig,
    MambaFields, MambaNorms, Mixer, MixerKind, ModelConfig, MoeConfig, MoeNames, PositionRule,
    Scoring, WeightNames, bamba, hybrid, llama,
};

pub(super) const FAMILY: Family = Family {
    architecture: "JambaForCausalLM",
    model_type: "jamba",
    models: "Jamba, Jamba 1.5 and 1.7",
    aliases: &[("num_local_experts", "num_experts")],
    defaults: Defaults {
        num_key_value_heads: Some(8),
        max_position_embeddings: 262_144,
        ..llama::DEFAULTS
    },
    qkv_bias: Bias::Never,
    o_bias: Bias::Never,
    mlp_bias: Bias::Never,
    positions: PositionRule::None,
    layers: LayerRule::Own(layers),
    mixers: &[MixerKind::Attention, MixerKind::Mamba],
    names: WeightNames {
        moe: MoeNames {
            router: "feed_forward.router",
            experts: ExpertNames::Each {
                module: "feed_forward.experts",
                inner: &["gate_proj", "up_proj"],
                down_proj: "down_proj",
            },
            ..llama::MOE
        },
        ..bamba::NAMES
    },
    adjust,
    ..llama::FAMILY
};

const FIELDS: MambaFields = MambaFields {
    state_size: ("mamba_d_state", 16),
    time_step_rank: "mamba_dt_rank",
    conv_kernel: ("mamba_d_conv", 4),
    inner_size: None,
    expand: ("mamba_expand", 2.0),
    conv_bias: ("mamba_conv_bias", true),
    proj_bias: ("mamba_proj_bias", false),
};

fn layers(
    fields: &Fields,
    family: &Family,
    max_position_embeddings: usize,
) -> Result<Vec<LayerConfig>, ConfigError> {
    let eps = fields.positive(family.norm.eps)?.unwrap_or(family.defaults.norm_eps) as f32;
    let mamba = FIELDS.read(fields)?;
    let mamba = Mixer::Mamba(MambaConfig { norms: MambaNorms::Weighted { eps }, ..mamba });
    let (period, offset) = place(fields, "attn_layer_period", "attn_layer_offset", [8, 4])?;
    hybrid(fields, family, max_position_embeddings, &mamba, |layer| layer % period == offset)
}

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    let num_experts = fields.size("num_experts")?.unwrap_or(16);
    let (period, offset) = place(fields, "expert_layer_period", "expert_layer_offset", [2, 1])?;
    if num_experts == 1 {
        return Ok(());
    }
    let moe = MoeConfig {
        num_experts,
        top_k: fields.size("num_experts_per_tok")?.unwrap_or(2),
        scoring: Scoring::Softmax,
        ..MoeConfig::of_dense(config)
    };
    config.set_experts(fields, &moe, |layer| layer % period == offset)
}

/// Reads the length of a period of layers, and the place of one of them.
fn place(
    fields: &Fields,
    period_field: &str,
    offset_field: &str,
    [period, offset]: [usize; 2],
) -> Result<(usize, usize), ConfigError> {
    let period = fields.size(period_field)?.unwrap_or(period);
    let offset = fields.count(offset_field)?.unwrap_or(offset);
    match offset < period {
        true => Ok((period, offset)),
        false => Err(fields.invalid(offset_field, &format!("below {period_field}, {period}"))),
    }
}
