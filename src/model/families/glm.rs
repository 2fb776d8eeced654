//! GLM-4 of 2024 and GLM-Edge: HF `GlmForCausalLM`.
//!
//! Llama with biases on q, k and v, and one matrix for gate and up
//! (<https://arxiv.org/abs/2406.12793>). Half of a head rotates, in neighbouring pairs.

use super::{
    Bias, ConfigError, Defaults, Family, Fields, MlpNames, ModelConfig, PositionRule, WeightNames,
    llama,
};

pub(super) const FAMILY: Family = Family {
    architecture: "GlmForCausalLM",
    model_type: "glm",
    models: "GLM-4 of 2024, GLM-Edge",
    defaults: Defaults {
        num_key_value_heads: Some(2),
        head_dim: Some(128),
        max_position_embeddings: 131_072,
        norm_eps: 0.000_000_156_25,
        ..llama::DEFAULTS
    },
    qkv_bias: Bias::UnlessUnset("attention_bias"),
    o_bias: Bias::Never,
    mlp_bias: Bias::Never,
    positions: PositionRule::Rotary { is_interleaved: true, percent: 50 },
    rope: llama::PARTIAL_ROPE,
    names: WeightNames {
        mlp: MlpNames { inner: &["mlp.gate_up_proj"], ..llama::NAMES.mlp },
        ..llama::NAMES
    },
    adjust,
    ..llama::FAMILY
};

/// The tokens that end a sequence if the config has none.
const EOS: [u32; 3] = [151_329, 151_336, 151_338];

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    if fields.value("eos_token_id").is_none() {
        config.eos_token_ids = EOS.to_vec();
    }
    Ok(())
}
