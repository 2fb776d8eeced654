//! Command R7B and Command A: HF `Cohere2ForCausalLM`.
//!
//! Cohere with a sliding window in three layers of four. Only those have positions.

use super::{
    ConfigError, Defaults, Family, Fields, ModelConfig, WeightNames, WindowRule, cohere, llama,
};

pub(super) const FAMILY: Family = Family {
    architecture: "Cohere2ForCausalLM",
    model_type: "cohere2",
    models: "Command R7B, Command A",
    defaults: Defaults { rope_theta: 10_000.0, ..cohere::FAMILY.defaults },
    windows: WindowRule::AllButEvery { period: 4, field: Some("sliding_window_pattern") },
    names: WeightNames { attention: llama::NAMES.attention, ..cohere::FAMILY.names },
    adjust,
    ..cohere::FAMILY
};

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    let full = config.attentions().filter(|attention| attention.sliding_window.is_none());
    full.for_each(|attention| attention.rope = None);
    cohere::scale_logits(fields, config)
}
