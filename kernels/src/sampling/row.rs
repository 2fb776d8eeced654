//! What one row asks for, and what it gets.

use super::LogprobRow;

/// Temperatures below this mean the largest logit (vLLM's bound).
pub const GREEDY_TEMPERATURE: f32 = 1e-5;

/// How to pick a token from one row; ranges are checked at admission. Token ids outside the row
/// are ignored throughout.
#[derive(Debug, Clone)]
pub struct SamplingRow<'a> {
    /// Divides the logits; below [`GREEDY_TEMPERATURE`] greedy.
    pub temperature: f32,
    /// Keeps the tokens not below the `top_k`-th largest logit; 0 keeps all.
    pub top_k: u32,
    /// Keeps the most likely tokens up to this mass, in `(0, 1]`.
    pub top_p: f32,
    /// Keeps tokens at least this fraction as likely as the most likely; 0 keeps all.
    pub min_p: f32,
    /// Subtracted from tokens that occur in the output.
    pub presence_penalty: f32,
    /// Subtracted for each occurrence in the output.
    pub frequency_penalty: f32,
    /// Divides positive and multiplies other logits of tokens in prompt or output; 1 is off.
    pub repetition_penalty: f32,
    /// The prompt.
    pub prompt_token_ids: &'a [u32],
    /// Tokens generated so far.
    pub output_token_ids: &'a [u32],
    /// Added to the logits of these tokens.
    pub logit_bias: &'a [(u32, f32)],
    /// Where set, no other token may come.
    pub allowed_token_ids: Option<&'a [u32]>,
    /// Token sequences that must not be completed.
    pub bad_words: &'a [Vec<u32>],
    /// `stop_token_ids` are masked while the output is shorter.
    pub min_tokens: u32,
    /// End-of-sequence and stop tokens.
    pub stop_token_ids: &'a [u32],
    /// Where set, no other token may come whatever else is asked for: bit `t % 32` of word `t / 32`
    /// is set for those that may. Words that are missing are 0.
    pub token_bitmask: Option<&'a [u32]>,
    /// The request's seed.
    pub seed: u64,
    /// Absolute position of the token to be drawn: prompt length plus output length.
    pub position: u64,
    /// `Some(k)`: log-probabilities of the sampled token and of the `k` likeliest.
    pub num_logprobs: Option<u32>,
    /// And of these, where log-probabilities are asked for at all.
    pub logprob_token_ids: &'a [u32],
}

impl SamplingRow<'_> {
    /// Whether the largest logit is taken without a draw.
    #[must_use]
    pub fn is_greedy(&self) -> bool {
        self.temperature < GREEDY_TEMPERATURE
    }

    /// Whether masks, biases or penalties may change a logit.
    pub(super) fn changes_logits(&self) -> bool {
        let is_masked = self.allowed_token_ids.is_some()
            || self.token_bitmask.is_some()
            || !self.bad_words.is_empty()
            || self.output_token_ids.len() < self.min_tokens as usize;
        let is_penalised = self.repetition_penalty != 1.0
            || self.frequency_penalty != 0.0
            || self.presence_penalty != 0.0;
        is_masked || is_penalised || !self.logit_bias.is_empty()
    }
}

impl Default for SamplingRow<'_> {
    /// vLLM's defaults: temperature 1, nothing else.
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            repetition_penalty: 1.0,
            prompt_token_ids: &[],
            output_token_ids: &[],
            logit_bias: &[],
            allowed_token_ids: None,
            bad_words: &[],
            min_tokens: 0,
            stop_token_ids: &[],
            token_bitmask: None,
            seed: 0,
            position: 0,
            num_logprobs: None,
            logprob_token_ids: &[],
        }
    }
}

/// A sampled token.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampled {
    /// Its id.
    pub token_id: u32,
    /// Log-probabilities, where asked for.
    pub logprobs: Option<LogprobRow>,
}

/// A row that no token can be taken from.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SampleError {
    /// The model produced garbage.
    #[error("logit of token {token_id} is {logit}, but must be finite or -inf")]
    NotFinite {
        /// The first such token.
        token_id: u32,
        /// Its logit, `NaN` or `inf`.
        logit: String,
    },
    /// Masks, biases and penalties leave no token.
    #[error("every token is masked; at least one must be allowed")]
    NoCandidate,
}
