//! The news of one choice.

use crate::logic::request::{
    FinishReason,
    ids::Micros,
    outputs::{Pooled, SampledToken, TokenLogprobs},
};

/// The news of one choice since its client last read.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct OutputDelta {
    /// Text that became final.
    pub text: String,
    /// Tokens that were committed.
    pub tokens: Vec<SampledToken>,
    /// The result of a pooling request, in the last delta only.
    pub pooled: Option<Pooled>,
    /// Log-probabilities of further prompt tokens. The first row of all belongs to position 1.
    pub prompt_logprobs: Vec<TokenLogprobs>,
    /// Prompt tokens that came from the prefix cache, once known.
    pub num_cached_tokens: Option<usize>,
    /// Microseconds from arrival until it was first scheduled, once known.
    pub queue_time: Option<Micros>,
    /// The finish reason, in the last delta only.
    pub finish: Option<FinishReason>,
}

impl OutputDelta {
    /// Returns roughly how much memory it takes, bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let tokens: usize = self.tokens.iter().map(token_bytes).sum();
        let rows: usize = self.prompt_logprobs.iter().map(row_bytes).sum();
        let pooled = self.pooled.as_ref().map_or(0, Pooled::bytes);
        self.text.len() + tokens + pooled + rows
    }
}

pub(super) fn token_bytes(token: &SampledToken) -> usize {
    size_of::<SampledToken>() + token.logprobs.as_ref().map_or(0, |row| size_of_val(&row[..]))
}

pub(super) fn row_bytes(row: &TokenLogprobs) -> usize {
    size_of::<TokenLogprobs>() + size_of_val(&row[..])
}
