//! Granite 3: HF `GraniteForCausalLM`.
//!
//! Llama with factors on embeddings, scores of attention, residual branches and logits
//! (<https://arxiv.org/abs/2408.13359>).

use super::{ConfigError, Family, Fields, ModelConfig, llama};

pub(super) const FAMILY: Family = Family {
    architecture: "GraniteForCausalLM",
    model_type: "granite",
    models: "Granite 3, dense",
    adjust,
    ..llama::FAMILY
};

/// Reads the four factors.
pub(super) fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    let factor = |field| Ok::<_, ConfigError>(fields.positive(field)?.unwrap_or(1.0) as f32);
    config.embedding.input_multiplier = factor("embedding_multiplier")?;
    config.residual_multiplier = factor("residual_multiplier")?;
    let scale = factor("attention_multiplier")?;
    config.attentions().for_each(|attention| attention.scale = scale);
    config.logits.divisor = factor("logits_scaling")?;
    Ok(())
}
