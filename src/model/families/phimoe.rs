//! Phi-3.5-MoE, Phi-mini-MoE and Phi-tiny-MoE: HF `PhimoeForCausalLM`.
//!
//! Mixtral with layer norms, biases, and a sparse mixer: each of the two experts has its softmax
//! among the experts near it (<https://arxiv.org/abs/2409.12136>). LongRoPE has a factor of cosines
//! and sines for short contexts, and one for long ones.
//!
//! In long contexts, HF's class has the frequencies of short ones, with the factor of long ones.
//! The authors' code and vLLM have the frequencies of long ones, and so has this family.

use super::{
    Bias, ConfigError, Defaults, Family, Fields, ModelConfig, MoeConfig, NormKind, NormRule,
    RopeScaling, Scoring, WindowRule, llama, mixtral,
};

pub(super) const FAMILY: Family = Family {
    architecture: "PhimoeForCausalLM",
    model_type: "phimoe",
    models: "Phi-3.5-MoE, Phi-mini-MoE, Phi-tiny-MoE",
    defaults: Defaults {
        num_key_value_heads: Some(8),
        intermediate_size: Some(6_400),
        max_position_embeddings: 131_072,
        rope_theta: 1_000_000.0,
        norm_eps: 1e-5,
        ..llama::DEFAULTS
    },
    qkv_bias: Bias::IfSet("attention_bias"),
    o_bias: Bias::IfSet("attention_bias"),
    mlp_bias: Bias::Never,
    windows: WindowRule::IfSet,
    norm: NormRule { kind: NormKind::Layer { has_bias: true }, eps: "rms_norm_eps" },
    adjust,
    ..mixtral::FAMILY
};

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    config.logits.has_bias = fields.flag("lm_head_bias")?.unwrap_or(false);
    set_mscales(fields, config)?;
    const FIELD: &str = "num_experts_per_tok";
    if fields.size(FIELD)?.is_some_and(|top_k| top_k != 2) {
        // HF's class always takes two.
        return Err(fields.invalid(FIELD, "2"));
    }
    let moe = MoeConfig {
        num_experts: fields.size("num_experts")?.unwrap_or(16),
        top_k: 2,
        scoring: Scoring::SparseMixer,
        jitter: fields.number("router_jitter_noise")?.unwrap_or(0.01) as f32,
        ..MoeConfig::of_dense(config)
    };
    config.set_experts(fields, &moe, |_| true)
}

/// The factors of cosines and sines in short contexts, and in long ones.
const MSCALES: [&str; 2] = ["short_mscale", "long_mscale"];

/// Reads these factors, which a config with LongRoPE must have.
fn set_mscales(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    let Some(parameters) = fields.rope()? else { return Ok(()) };
    for rope in config.attentions().filter_map(|attention| attention.rope.as_mut()) {
        match &mut rope.scaling {
            RopeScaling::Default => {}
            RopeScaling::LongRope(longrope) => {
                // A GGUF file has one factor for both, and no numbers by these names.
                let is_given = MSCALES.iter().any(|field| parameters.has(field));
                if is_given || longrope.attention_factor.is_none() {
                    let read = |field: &str| parameters.required_positive(field);
                    longrope.mscales = Some([read(MSCALES[0])?, read(MSCALES[1])?]);
                }
            }
            _ => return Err(parameters.invalid("rope_type", "\"default\" or \"longrope\"")),
        }
    }
    Ok(())
}
