//! The answers.

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::server::generate::usage::Usage;

/// The number of tokens of a ranking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub(in crate::server) struct ShortUsage {
    pub(super) prompt_tokens: usize,
    pub(super) total_tokens: usize,
}

impl ShortUsage {
    pub(super) fn new(prompt_tokens: usize) -> Self {
        Self { prompt_tokens, total_tokens: prompt_tokens }
    }
}

/// The answers to most routes. Each type has a name of its own in the API's document.
macro_rules! answers {
    ($($(#[doc = $doc:literal])+ $name:ident: $item:ty,)+) => {
        $(
            $(#[doc = $doc])+
            #[derive(Debug, Serialize, ToSchema)]
            pub(in crate::server) struct $name {
                pub(super) id: String,
                pub(super) object: &'static str,
                pub(super) created: u64,
                pub(super) model: String,
                pub(super) data: Vec<$item>,
                pub(super) usage: Usage,
            }
        )+
    };
}

answers! {
    /// The answer to `/v1/embeddings`.
    Embeddings: Embedding,
    /// The answer to `/pooling`.
    Poolings: Pooling,
    /// The answer to `/classify`.
    Classes: Class,
    /// The answer to `/score`.
    Scores: Score,
}

/// Numbers of one input: a vector, a vector for each token, or both as base64.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(untagged)]
pub(in crate::server) enum Numbers {
    Vector(Vec<f32>),
    Rows(Vec<Vec<f32>>),
    Base64(String),
}

#[derive(Debug, Serialize, ToSchema)]
pub(in crate::server) struct Embedding {
    pub(super) index: usize,
    pub(super) object: &'static str,
    pub(super) embedding: Numbers,
}

#[derive(Debug, Serialize, ToSchema)]
pub(in crate::server) struct Pooling {
    pub(super) index: usize,
    pub(super) object: &'static str,
    pub(super) data: Numbers,
}

#[derive(Debug, Serialize, ToSchema)]
pub(in crate::server) struct Class {
    pub(super) index: usize,
    pub(super) label: String,
    pub(super) probs: Vec<f32>,
    pub(super) num_classes: usize,
}

#[derive(Debug, Serialize, ToSchema)]
pub(in crate::server) struct Score {
    pub(super) index: usize,
    pub(super) object: &'static str,
    pub(super) score: f32,
}

/// The answer to `/rerank`.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::server) struct Ranking {
    pub(super) id: String,
    pub(super) model: String,
    pub(super) usage: ShortUsage,
    pub(super) results: Vec<Ranked>,
}

#[derive(Debug, PartialEq, Serialize, ToSchema)]
pub(in crate::server) struct Ranked {
    pub(super) index: usize,
    pub(super) document: RankedText,
    pub(super) relevance_score: f32,
}

#[derive(Debug, PartialEq, Serialize, ToSchema)]
pub(in crate::server) struct RankedText {
    pub(super) text: Option<String>,
    pub(super) multi_modal: Option<Vec<Value>>,
}
