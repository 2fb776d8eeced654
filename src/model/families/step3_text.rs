//! Step 3, the text model: `Step3TextForCausalLM` of vLLM.
//!
//! All query heads share one key head, and queries have a low rank with a norm
//! (<https://arxiv.org/abs/2412.19255>). Experts are chosen by softmax scores, beside an expert of
//! all tokens.

use super::{
    ConfigError, Defaults, ExpertNames, Family, Fields, LowRankQueries, MlpNames, ModelConfig,
    MoeConfig, MoeNames, Scoring, SharedExpert, WeightNames, llama, step3p5,
};

pub(super) const FAMILY: Family = Family {
    architecture: "Step3TextForCausalLM",
    model_type: "step3_text",
    models: "Step 3 (text)",
    aliases: &[
        ("num_attention_groups", "num_key_value_heads"),
        ("max_position_embedding", "max_position_embeddings"),
        ("moe_num_experts", "num_experts"),
        ("moe_top_k", "num_experts_per_tok"),
    ],
    defaults: Defaults {
        num_key_value_heads: Some(1),
        head_dim: Some(256),
        intermediate_size: Some(18_432),
        max_position_embeddings: 65_536,
        rope_theta: 500_000.0,
        norm_eps: 1e-5,
        ..llama::DEFAULTS
    },
    names: WeightNames {
        moe: MoeNames {
            router: "moe.gate",
            experts: ExpertNames::Stacked {
                inner: &["moe.gate_proj", "moe.up_proj"],
                down_proj: "moe.down_proj",
            },
            shared: MlpNames {
                inner: &["share_expert.gate_proj", "share_expert.up_proj"],
                down_proj: "share_expert.down_proj",
            },
            ..llama::MOE
        },
        ..llama::NAMES
    },
    adjust,
    ..llama::FAMILY
};

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    const RANK: &str = "share_q_dim";
    const KV_HEADS: &str = "num_key_value_heads";
    let rank = match fields.has(RANK) {
        true => fields.required_size(RANK)?,
        false => 2_048,
    };
    for attention in config.attentions() {
        if attention.num_kv_heads != 1 {
            return Err(fields.invalid(KV_HEADS, "1: all heads share a key"));
        }
        let (norm, output) = ("self_attn.inter_norm", "self_attn.wq");
        attention.low_rank = Some(LowRankQueries { rank, norm, output });
    }
    for field in ["attention_bias", "mlp_bias"] {
        if fields.flag(field)?.unwrap_or(false) {
            return Err(fields.invalid(field, "false"));
        }
    }
    let shared = fields.size("share_expert_dim")?.unwrap_or(5_120);
    let moe = MoeConfig {
        num_experts: fields.size("num_experts")?.unwrap_or(48),
        top_k: fields.size("num_experts_per_tok")?.unwrap_or(3),
        intermediate_size: fields.size("moe_intermediate_size")?.unwrap_or(5_120),
        scoring: Scoring::Softmax,
        renormalize: fields.flag("norm_expert_weight")?.unwrap_or(false),
        shared: Some(SharedExpert { intermediate_size: shared, has_gate: false }),
        ..MoeConfig::of_dense(config)
    };
    let listed = step3p5::listed_layers(fields)?.unwrap_or_else(|| (4..60).collect());
    config.set_experts(fields, &moe, |layer| listed.contains(&layer))
}
