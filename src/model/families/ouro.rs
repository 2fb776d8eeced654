//! Ouro: `OuroForCausalLM` of its folders' own code, and of vLLM until 0.26.
//!
//! Llama with norms after attention and MLP as well as before them. A token passes all layers
//! several times, and the norm after the last layer follows each pass
//! (<https://arxiv.org/abs/2510.25741>). As in vLLM, no token leaves before the last pass, so the
//! gate for that is not read.

use super::{
    Bias, ConfigError, Family, Fields, LayerNorms, ModelConfig, Passes, WeightNames, llama, qwen2,
};

pub(super) const FAMILY: Family = Family {
    architecture: "OuroForCausalLM",
    model_type: "ouro",
    models: "Ouro 1.4B and 2.6B, also Thinking",
    qkv_bias: Bias::Never,
    names: WeightNames {
        norms: LayerNorms {
            before_attention: Some("input_layernorm"),
            after_attention: Some("input_layernorm_2"),
            before_mlp: Some("post_attention_layernorm"),
            after_mlp: Some("post_attention_layernorm_2"),
        },
        ..llama::NAMES
    },
    adjust,
    ..qwen2::FAMILY
};

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    const THRESHOLD: &str = "early_exit_threshold";
    if fields.number(THRESHOLD)?.is_some_and(|threshold| threshold < 1.0) {
        return Err(fields.invalid(THRESHOLD, "1: no token leaves before the last pass"));
    }
    config.passes = Passes::read(fields, "total_ut_steps", 4, config.layers.len())?;
    config.passes.exit_gate = Some("model.early_exit_gate");
    Ok(())
}
