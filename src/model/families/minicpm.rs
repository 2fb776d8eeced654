//! MiniCPM 1, 2 and 4: `MiniCPMForCausalLM` of their folders' own code, and of vLLM.
//!
//! Llama with factors on embeddings, residual branches and logits
//! (<https://arxiv.org/abs/2404.06395>).

use super::{Bias, ConfigError, Defaults, Family, Fields, ModelConfig, llama};

pub(super) const FAMILY: Family = Family {
    architecture: "MiniCPMForCausalLM",
    model_type: "minicpm",
    models: "MiniCPM 1, 2 and 4, dense",
    defaults: Defaults { tie_word_embeddings: true, ..llama::DEFAULTS },
    mlp_bias: Bias::Never,
    adjust,
    ..llama::FAMILY
};

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    if fields.count("num_experts")?.unwrap_or(0) > 0 {
        return Err(fields.invalid("num_experts", "0: dense models"));
    }
    if fields.value("sparse_config").is_some() {
        return Err(fields.invalid("sparse_config", "null: attention to all tokens"));
    }
    let factor = |field| Ok::<_, ConfigError>(fields.positive(field)?.unwrap_or(1.0));
    config.embedding.multiplier = factor("scale_emb")? as f32;
    let depth = (config.layers.len() as f64).sqrt();
    config.residual_multiplier = (factor("scale_depth")? / depth) as f32;
    config.logits.divisor = (config.hidden_size as f64 / factor("dim_model_base")?) as f32;
    Ok(())
}
