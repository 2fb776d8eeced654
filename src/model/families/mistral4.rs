//! Mistral Small 4, text only: HF `Mistral4ForCausalLM`.
//!
//! DeepSeek V3's attention, with queries that grow with the position
//! (<https://arxiv.org/abs/2501.19399>). Experts are chosen by softmax scores.

use serde_json::json;

use super::{
    ConfigError, Defaults, ExpertNames, Family, Fields, LatentRule, LayerConfig, LayerRule, Mixer,
    ModelConfig, MoeConfig, MoeNames, Scoring, WeightNames, deepseek_v2, deepseek_v3, llama,
    ministral3, read_alike,
};

pub(super) const FAMILY: Family = Family {
    architecture: "Mistral4ForCausalLM",
    model_type: "mistral4",
    other_model_types: &[],
    models: "Mistral Small 4, text only",
    aliases: &[("n_routed_experts", "num_experts"), ("num_local_experts", "num_experts")],
    defaults: Defaults {
        intermediate_size: Some(12_288),
        max_position_embeddings: 1_048_576,
        ..llama::DEFAULTS
    },
    latent: Some(&LATENT),
    names: WeightNames {
        moe: MoeNames {
            experts: ExpertNames::FusedByOutput {
                inner: "mlp.experts.gate_up_proj",
                down_proj: "mlp.experts.down_proj",
            },
            ..llama::MOE
        },
        ..llama::NAMES
    },
    layers: LayerRule::Own(layers),
    adjust,
    ..deepseek_v3::FAMILY
};

const LATENT: LatentRule = LatentRule {
    q_lora_rank: Some(1_024),
    kv_lora_rank: 256,
    qk_nope_head_dim: 64,
    ..deepseek_v3::LATENT
};

/// The part of a query that rotates, as a field of rotary parameters.
const PART: &str = "partial_rotary_factor";

fn layers(
    fields: &Fields,
    family: &Family,
    max_position_embeddings: usize,
) -> Result<Vec<LayerConfig>, ConfigError> {
    let fields = with_rope(fields)?;
    let mut layers = read_alike(&without_part(&fields)?, family, max_position_embeddings)?;
    let temperature = ministral3::temperature(&fields, max_position_embeddings)?;
    for layer in &mut layers {
        if let Mixer::Latent(latent) = &mut layer.mixer {
            latent.temperature = temperature;
        }
    }
    Ok(layers)
}

/// Returns the fields with rotary parameters: HF `Mistral4Config`.
fn with_rope(fields: &Fields) -> Result<Fields, ConfigError> {
    fields.or_rope(json!({
        "rope_type": "yarn",
        "rope_theta": 10_000.0,
        "factor": 128.0,
        "original_max_position_embeddings": 8_192,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "mscale_all_dim": 1.0,
        "mscale": 1.0,
        "llama_4_scaling_beta": 0.1,
    }))
}

/// Returns the fields without the part of a query that rotates, which their sizes have already.
fn without_part(fields: &Fields) -> Result<Fields, ConfigError> {
    let size =
        |field: &str, default: usize| Ok::<_, ConfigError>(fields.size(field)?.unwrap_or(default));
    let rotating = size("qk_rope_head_dim", LATENT.qk_rope_head_dim)?;
    let all = rotating + size("qk_nope_head_dim", LATENT.qk_nope_head_dim)?;
    let check = |parameters: &Fields| match parameters.positive(PART)? {
        Some(part) if (all as f64 * part) as usize != rotating => {
            let expected = format!("{rotating} / {all}, as qk_rope_head_dim says");
            Err(parameters.invalid(PART, &expected))
        }
        _ => Ok(()),
    };
    check(fields)?;
    let mut rest = fields.without(&[PART]);
    for name in ["rope_scaling", "rope_parameters"] {
        if let Some(parameters) = fields.nested(name)? {
            check(&parameters)?;
            rest = rest.with(name, parameters.without(&[PART]).object().clone().into());
        }
    }
    Ok(rest)
}

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    let intermediate_size = fields.size("moe_intermediate_size")?.unwrap_or(2_048);
    let moe = MoeConfig {
        num_experts: fields.size("num_experts")?.unwrap_or(128),
        top_k: fields.size("num_experts_per_tok")?.unwrap_or(4),
        intermediate_size,
        renormalize: fields.flag_or("norm_topk_prob", true)?,
        scoring: Scoring::Softmax,
        groups: MoeConfig::groups(fields)?,
        scale: fields.positive("routed_scaling_factor")?.unwrap_or(1.0) as f32,
        shared: deepseek_v2::shared(fields, 1, intermediate_size)?,
        ..MoeConfig::of_dense(config)
    };
    let first = fields.count("first_k_dense_replace")?.unwrap_or(0);
    config.set_experts(fields, &moe, |layer| layer >= first)
}
