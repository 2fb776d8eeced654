//! Tele-FLM: `TeleFLMForCausalLM` of its folder's own code, and of vLLM.
//!
//! Llama with the factors of embeddings and logits of µP (<https://arxiv.org/abs/2404.16645>).

use super::{ConfigError, Defaults, Family, Fields, ModelConfig, llama};

pub(super) const FAMILY: Family = Family {
    architecture: "TeleFLMForCausalLM",
    model_type: "TeleFLM",
    other_model_types: &["teleflm"],
    models: "Tele-FLM 52B",
    defaults: Defaults { max_position_embeddings: 4_096, norm_eps: 1e-5, ..llama::DEFAULTS },
    adjust,
    ..llama::FAMILY
};

/// Reads the factors. They have no default where `use_mup` is set.
fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    if !fields.flag("use_mup")?.unwrap_or(false) {
        return Ok(());
    }
    let factor = |field| Ok::<_, ConfigError>(fields.required_positive(field)? as f32);
    config.embedding.multiplier = factor("input_mult")?;
    config.logits.multiplier = factor("output_mult")?;
    config.logits.divisor = factor("mup_scale_factor")?;
    Ok(())
}
