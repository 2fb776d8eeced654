//! The settings of what one request may hold.

use serde::{Deserialize, Serialize};

use super::quantity;

/// How much one request may ask for. More is answered with 400, which names field and limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitSettings {
    /// Deepest nesting of arrays and objects in a body.
    #[serde(deserialize_with = "quantity::count")]
    pub max_json_depth: usize,
    /// Prompts of one completion request.
    #[serde(deserialize_with = "quantity::count")]
    pub max_completion_prompts: usize,
    /// Choices of one request: `n` times its prompts.
    #[serde(deserialize_with = "quantity::count")]
    pub max_n_sequences: usize,
    /// Stop strings.
    #[serde(deserialize_with = "quantity::count")]
    pub max_stop_strings: usize,
    /// Words in `bad_words`.
    #[serde(deserialize_with = "quantity::count")]
    pub max_num_bad_words: usize,
    /// Messages of one conversation.
    #[serde(deserialize_with = "quantity::count")]
    pub max_messages: usize,
    /// Tools on offer.
    #[serde(deserialize_with = "quantity::count")]
    pub max_tools: usize,
}

impl Default for LimitSettings {
    fn default() -> Self {
        Self {
            max_json_depth: 100,
            max_completion_prompts: 1024,
            max_n_sequences: 1024,
            max_stop_strings: 4,
            max_num_bad_words: 128,
            max_messages: 4096,
            max_tools: 1024,
        }
    }
}
