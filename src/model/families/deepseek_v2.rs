//! DeepSeek V2, V2 Lite, V2.5 and Coder V2: HF `DeepseekV2ForCausalLM`
//! (<https://arxiv.org/abs/2405.04434>).
//!
//! Latent attention, and experts that are chosen by softmax scores: the best of all, or the best of
//! the groups with the best experts. As in the class of transformers, the weights of chosen experts
//! are never divided by their sum.

use serde_json::Value;

use super::{
    ConfigError, Family, Fields, GroupScoring, KvNames, LatentNames, LatentRule, MixerKind,
    ModelConfig, MoeConfig, PositionRule, Scoring, SharedExpert, llama,
};

pub(super) const FAMILY: Family = Family {
    architecture: "DeepseekV2ForCausalLM",
    model_type: "deepseek_v2",
    models: "DeepSeek V2, V2 Lite, V2.5 and Coder V2",
    aliases: &[("n_routed_experts", "num_experts"), ("num_experts", "num_experts")],
    latent: Some(&LatentRule {
        q_lora_rank: Some(1_536),
        kv_lora_rank: 512,
        qk_nope_head_dim: 128,
        qk_rope_head_dim: 64,
        v_head_dim: Some(128),
        has_rope_interleave: false,
        names: LATENT,
    }),
    mixers: &[MixerKind::Latent],
    positions: PositionRule::Rotary { is_interleaved: true, percent: 100 },
    adjust,
    ..llama::FAMILY
};

/// The names of latent attention in all families that have it.
pub(super) const LATENT: LatentNames = LatentNames {
    q_proj: "self_attn.q_proj",
    q_a_proj: "self_attn.q_a_proj",
    q_a_norm: "self_attn.q_a_layernorm",
    q_b_proj: "self_attn.q_b_proj",
    kv_a_proj: "self_attn.kv_a_proj_with_mqa",
    kv_a_norm: "self_attn.kv_a_layernorm",
    kv_b_proj: KvNames::One("self_attn.kv_b_proj"),
};

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    require(fields, "scoring_func", "softmax")?;
    if fields.flag("norm_topk_prob")?.unwrap_or(false) {
        // Other implementations divide, with and without the factor.
        tracing::warn!("norm_topk_prob has no effect on this architecture, as in transformers");
    }
    let groups = match fields.text("topk_method")? {
        None | Some("greedy") => None,
        Some("group_limited_greedy") => {
            fields.required_size("n_group")?;
            fields.required_size("topk_group")?;
            MoeConfig::groups(fields)?
        }
        Some(_) => {
            let expected = "\"greedy\" or \"group_limited_greedy\"";
            return Err(fields.invalid("topk_method", expected));
        }
    };
    let intermediate_size = fields.size("moe_intermediate_size")?.unwrap_or(1_407);
    let moe = MoeConfig {
        num_experts: fields.size("num_experts")?.unwrap_or(64),
        top_k: fields.required_size("num_experts_per_tok")?,
        intermediate_size,
        scoring: Scoring::Softmax,
        groups,
        group_scoring: GroupScoring::Max,
        scale: fields.positive("routed_scaling_factor")?.unwrap_or(1.0) as f32,
        shared: shared(fields, 2, intermediate_size)?,
        ..MoeConfig::of_dense(config)
    };
    set_experts(fields, config, &moe, 0)
}

/// Returns the shared experts, which are one MLP, of `default` times the size of an expert.
pub(super) fn shared(
    fields: &Fields,
    default: usize,
    intermediate_size: usize,
) -> Result<Option<SharedExpert>, ConfigError> {
    let count = match fields.has("n_shared_experts") {
        true => fields.count("n_shared_experts")?.unwrap_or(0),
        false => default,
    };
    let intermediate_size = count * intermediate_size;
    Ok((count > 0).then_some(SharedExpert { intermediate_size, has_gate: false }))
}

/// Gives experts to every `moe_layer_freq`th layer from `first_k_dense_replace` on, as the code of
/// the published checkpoints does.
pub(super) fn set_experts(
    fields: &Fields,
    config: &mut ModelConfig,
    moe: &MoeConfig,
    first: usize,
) -> Result<(), ConfigError> {
    let first = fields.count("first_k_dense_replace")?.unwrap_or(first);
    let every = fields.size("moe_layer_freq")?.unwrap_or(1);
    config.set_experts(fields, moe, |layer| layer >= first && layer.is_multiple_of(every))
}

/// Rejects another value of a field whose value the architecture fixes.
pub(super) fn require(fields: &Fields, field: &str, accepted: &str) -> Result<(), ConfigError> {
    match fields.text(field)? {
        Some(value) if value != accepted => {
            Err(fields.invalid(field, &Value::from(accepted).to_string()))
        }
        _ => Ok(()),
    }
}
