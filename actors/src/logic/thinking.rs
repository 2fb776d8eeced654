//! Thoughts at the beginning of an output: free of its structure, and bounded by a budget.

use serde::{Deserialize, Serialize};

use super::ids::TokenId;

/// How a model marks its thoughts, and how many it may have. What is structured about an output
/// concerns only what follows them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thinking {
    /// The tokens that begin thoughts. A prompt may hold them; an output may begin without.
    pub begin: Vec<TokenId>,
    /// The tokens that end thoughts; at least one.
    pub end: Vec<TokenId>,
    /// Most tokens of thought, before the end is forced.
    pub budget: Option<u32>,
}
