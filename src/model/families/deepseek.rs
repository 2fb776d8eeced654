//! DeepSeek MoE 16B: `DeepseekForCausalLM` of its folders' own code, and of vLLM.
//!
//! Llama with experts that are chosen by softmax scores, and experts of all tokens
//! (<https://arxiv.org/abs/2401.06066>). Without experts it is Llama.

use super::{
    Bias, ConfigError, Family, Fields, ModelConfig, MoeConfig, Scoring, deepseek_v2, llama,
};

pub(super) const FAMILY: Family = Family {
    architecture: "DeepseekForCausalLM",
    model_type: "deepseek",
    models: "DeepSeek MoE 16B",
    aliases: &[("n_routed_experts", "num_experts"), ("num_experts", "num_experts")],
    mlp_bias: Bias::Never,
    adjust,
    ..llama::FAMILY
};

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    deepseek_v2::require(fields, "scoring_func", "softmax")?;
    if fields.value("num_experts").is_none() {
        return Ok(());
    }
    let intermediate_size = fields.size("moe_intermediate_size")?.unwrap_or(1_407);
    let moe = MoeConfig {
        num_experts: fields.required_size("num_experts")?,
        top_k: fields.required_size("num_experts_per_tok")?,
        intermediate_size,
        scoring: Scoring::Softmax,
        renormalize: fields.flag("norm_topk_prob")?.unwrap_or(false),
        shared: deepseek_v2::shared(fields, 0, intermediate_size)?,
        ..MoeConfig::of_dense(config)
    };
    deepseek_v2::set_experts(fields, config, &moe, 0)
}
