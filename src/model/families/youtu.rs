//! Youtu-LLM: HF `YoutuForCausalLM`.
//!
//! DeepSeek V3's attention in a dense model.

use super::{Defaults, Family, as_read, deepseek_v3, llama};

pub(super) const FAMILY: Family = Family {
    architecture: "YoutuForCausalLM",
    model_type: "youtu",
    other_model_types: &[],
    models: "Youtu-LLM",
    aliases: &[],
    defaults: Defaults {
        max_position_embeddings: 131_072,
        tie_word_embeddings: true,
        ..llama::DEFAULTS
    },
    adjust: as_read,
    ..deepseek_v3::FAMILY
};
