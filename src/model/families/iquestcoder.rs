//! IQuest-Coder: HF `IQuestCoderForCausalLM`.
//!
//! Llama. The fields of the original code that no published checkpoint uses are rejected, as by HF
//! `IQuestCoderConfig`.

use super::{ConfigError, Defaults, Family, Fields, ModelConfig, llama};

pub(super) const FAMILY: Family = Family {
    architecture: "IQuestCoderForCausalLM",
    model_type: "iquestcoder",
    models: "IQuest-Coder",
    defaults: Defaults {
        num_key_value_heads: Some(8),
        head_dim: Some(128),
        max_position_embeddings: 131_072,
        norm_eps: 1e-5,
        ..llama::DEFAULTS
    },
    adjust,
    ..llama::FAMILY
};

fn adjust(fields: &Fields, _: &mut ModelConfig) -> Result<(), ConfigError> {
    if fields.value("clip_qkv").is_some() {
        return Err(fields.invalid("clip_qkv", "null"));
    }
    match fields.flag("use_sliding_window")? {
        Some(true) => Err(fields.invalid("use_sliding_window", "false")),
        _ => Ok(()),
    }
}
