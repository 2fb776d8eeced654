//! SmolLM3: HF `SmolLM3ForCausalLM`.
//!
//! Llama without positions in every fourth layer (<https://arxiv.org/abs/2501.18795>). With
//! `use_sliding_window`, those layers have a window.

use super::{ConfigError, Defaults, Family, Fields, ModelConfig, WindowRule, llama};

pub(super) const FAMILY: Family = Family {
    architecture: "SmolLM3ForCausalLM",
    model_type: "smollm3",
    models: "SmolLM3",
    defaults: Defaults {
        num_key_value_heads: Some(4),
        max_position_embeddings: 32_768,
        tie_word_embeddings: true,
        rope_theta: 2_000_000.0,
        ..llama::DEFAULTS
    },
    windows: WindowRule::WithoutRope,
    adjust,
    ..llama::FAMILY
};

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    let count = config.layers.len();
    let has_rope = fields.rope_layers(count)?;
    for (attention, has_rope) in config.attentions().zip(has_rope) {
        if !has_rope {
            attention.rope = None;
        }
    }
    Ok(())
}
