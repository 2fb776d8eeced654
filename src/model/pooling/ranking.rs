//! The vectors of a prompt with a query and all its documents: those of the tokens behind them
//! (Jina Reranker 3).

use std::path::Path;

use super::tokens::Vocabulary;
use crate::model::ConfigError;

/// The tokens whose hidden states become vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RankingTokens {
    /// The token behind each document.
    pub document: u32,
    /// The token behind the query. Its vector is the last one of a result.
    pub query: u32,
}

impl RankingTokens {
    /// Reads the ids of the tokens in the vocabulary of `tokenizer`.
    pub(super) fn read(
        tokenizer: &Path,
        [document, query]: [&str; 2],
    ) -> Result<Self, ConfigError> {
        let vocabulary = Vocabulary::read(tokenizer)?;
        Ok(Self { document: vocabulary.id(document)?, query: vocabulary.id(query)? })
    }
}
