//! The parameters of one row, and its result.

use super::LogprobRow;

/// Temperatures below this select the largest logit (vLLM's bound).
pub const GREEDY_TEMPERATURE: f32 = 1e-5;

/// The parameters for a token from one row. Their ranges are checked when a request arrives. Token
/// ids outside the row are ignored everywhere.
#[derive(Debug, Clone)]
pub struct SamplingRow<'a> {
    /// The divisor of the logits. Below [`GREEDY_TEMPERATURE`] the choice is greedy.
    pub temperature: f32,
    /// Number of tokens with the largest logits to keep. Tokens whose logit equals the last of
    /// these are kept too. 0 keeps all tokens.
    pub top_k: u32,
    /// Total probability of the most likely tokens to keep, in `(0, 1]`.
    pub top_p: f32,
    /// Least probability of a kept token, as a fraction of the largest probability. 0 keeps all
    /// tokens.
    pub min_p: f32,
    /// The amount to subtract from tokens that occur in the output.
    pub presence_penalty: f32,
    /// The amount to subtract for each occurrence in the output.
    pub frequency_penalty: f32,
    /// The penalty of tokens that occur in the prompt or the output. It divides positive logits and
    /// multiplies others. 1 is off.
    pub repetition_penalty: f32,
    /// The prompt.
    pub prompt_token_ids: &'a [u32],
    /// Tokens generated so far.
    pub output_token_ids: &'a [u32],
    /// The amounts to add to the logits of these tokens.
    pub logit_bias: &'a [(u32, f32)],
    /// The only tokens that may be sampled, if set.
    pub allowed_token_ids: Option<&'a [u32]>,
    /// Token sequences that must not be completed.
    pub bad_words: &'a [Vec<u32>],
    /// Length of the output below which `stop_token_ids` are masked.
    pub min_tokens: u32,
    /// End-of-sequence and stop tokens.
    pub stop_token_ids: &'a [u32],
    /// A mask of the only tokens that may be sampled, if set. No other field overrides it. Bit `t %
    /// 32` of word `t / 32` is set for a token that may be sampled. Missing words are 0.
    pub token_bitmask: Option<&'a [u32]>,
    /// The request's seed.
    pub seed: u64,
    /// Absolute position of the drawn token: prompt length plus output length.
    pub position: u64,
    /// `Some(k)` asks for log-probabilities of the sampled token and of the `k` likeliest.
    pub num_logprobs: Option<u32>,
    /// Further tokens to report, if log-probabilities are asked for.
    pub logprob_token_ids: &'a [u32],
}

impl SamplingRow<'_> {
    /// Returns whether the largest logit is taken without a draw.
    #[must_use]
    pub fn is_greedy(&self) -> bool {
        self.temperature < GREEDY_TEMPERATURE
    }

    /// Returns whether masks, biases or penalties may change a logit.
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
    /// Returns vLLM's defaults: temperature 1, and every other feature off.
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
    /// Log-probabilities, if asked for.
    pub logprobs: Option<LogprobRow>,
}

/// The error of a row without a valid token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SampleError {
    /// The model produced a non-finite logit.
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
