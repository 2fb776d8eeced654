//! dots.llm1: HF `Dots1ForCausalLM`.
//!
//! Norms over query and key heads, and DeepSeek V3's mixture of experts: sigmoids, a bias for the
//! choice, and an expert of all tokens (<https://arxiv.org/abs/2506.05767>).

use super::{
    Bias, ConfigError, Defaults, Family, Fields, ModelConfig, MoeConfig, SharedExpert, WindowRule,
    llama,
};

pub(super) const FAMILY: Family = Family {
    architecture: "Dots1ForCausalLM",
    model_type: "dots1",
    models: "dots.llm1",
    aliases: &[("n_routed_experts", "num_experts"), ("num_local_experts", "num_experts")],
    defaults: Defaults { num_key_value_heads: Some(32), ..llama::DEFAULTS },
    mlp_bias: Bias::Never,
    windows: WindowRule::Always,
    names: llama::WITH_HEAD_NORMS,
    adjust,
    ..llama::FAMILY
};

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    if fields.value("layer_types").is_none() {
        let first = fields.count("max_window_layers")?.unwrap_or(62);
        config.attentions().take(first).for_each(|attention| attention.sliding_window = None);
    }
    let intermediate_size = fields.size("moe_intermediate_size")?.unwrap_or(1_408);
    let num_experts = fields.required_size("num_experts")?;
    let num_shared = fields.required_size("n_shared_experts")?;
    let moe = MoeConfig {
        top_k: fields.required_size("num_experts_per_tok")?,
        intermediate_size,
        renormalize: fields.flag("norm_topk_prob")?.unwrap_or(false),
        groups: MoeConfig::groups(fields)?,
        scale: fields.positive("routed_scaling_factor")?.unwrap_or(1.0) as f32,
        shared: Some(SharedExpert {
            intermediate_size: num_shared * intermediate_size,
            has_gate: false,
        }),
        ..MoeConfig::of_sigmoids(config, num_experts)
    };
    let first = fields.count("first_k_dense_replace")?.unwrap_or(0);
    config.set_experts(fields, &moe, |layer| layer >= first)
}
