//! MiniMax-M2: HF `MiniMaxM2ForCausalLM`.
//!
//! Mixtral whose experts are scored by sigmoids, with a bias of each expert for the choice. All
//! query heads of a token have one norm, and all key heads. `rotary_dim` elements of a head rotate.

use super::{
    Bias, ConfigError, Defaults, Family, Fields, HeadNormRule, ModelConfig, MoeConfig, MoeNames,
    WeightNames, WindowRule, llama, mixtral,
};

pub(super) const FAMILY: Family = Family {
    architecture: "MiniMaxM2ForCausalLM",
    model_type: "minimax_m2",
    models: "MiniMax-M2",
    defaults: Defaults {
        num_key_value_heads: Some(8),
        head_dim: Some(128),
        intermediate_size: Some(1_536),
        max_position_embeddings: 196_608,
        rope_theta: 5_000_000.0,
        ..llama::DEFAULTS
    },
    qkv_bias: Bias::Never,
    o_bias: Bias::Never,
    windows: WindowRule::Never,
    rope: llama::PARTIAL_ROPE,
    head_norm: HeadNormRule::RmsAcrossHeads,
    names: WeightNames {
        moe: MoeNames {
            correction_bias: "block_sparse_moe.e_score_correction_bias",
            ..mixtral::FAMILY.names.moe
        },
        in_adapters: mixtral::FAMILY.names.in_adapters,
        ..llama::WITH_HEAD_NORMS
    },
    adjust,
    ..mixtral::FAMILY
};

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    let num_experts = fields.size("num_experts")?.unwrap_or(256);
    let moe = MoeConfig {
        top_k: fields.size("num_experts_per_tok")?.unwrap_or(8),
        renormalize: true,
        ..MoeConfig::of_sigmoids(config, num_experts)
    };
    rotate_part(fields, config)?;
    config.set_experts(fields, &moe, |_| true)
}

/// Reads `rotary_dim` of published checkpoints, unless there is a `partial_rotary_factor`.
fn rotate_part(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    const FIELD: &str = "rotary_dim";
    let Some(rotary_dim) = fields.size(FIELD)? else { return Ok(()) };
    let factor = "partial_rotary_factor";
    if fields.value(factor).is_some() || fields.rope()?.is_some_and(|rope| rope.has(factor)) {
        return Ok(());
    }
    for attention in config.attentions() {
        let head_dim = attention.head_dim;
        if rotary_dim > head_dim || !rotary_dim.is_multiple_of(2) {
            return Err(fields.invalid(FIELD, &format!("an even number up to {head_dim}")));
        }
        if let Some(rope) = &mut attention.rope {
            (rope.rotary_dim, rope.frequency_dim) = (rotary_dim, rotary_dim);
        }
    }
    Ok(())
}
