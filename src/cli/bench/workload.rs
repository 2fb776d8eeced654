//! The requests of a benchmark's clients.

use clap::Args;

use crate::api::{FinishReason, Prompt, RawRequest, SamplingParams, TokenId};

/// Lengths of prompts and outputs.
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct Sizes {
    /// Tokens of a prompt
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub(super) prompt_tokens: usize,
    /// Tokens of an output, on average
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub(super) output_tokens: u32,
}

impl Sizes {
    /// Returns the most tokens of prompt and output together.
    pub(super) fn total_max(&self) -> usize {
        self.prompt_tokens.max(1) + (self.output_tokens.max(1) as usize * 3).div_ceil(2)
    }
}

/// Requests of several kinds for one model.
#[derive(Debug, Clone, Copy)]
pub(super) struct Workload {
    pub(super) vocab_size: u32,
    pub(super) sizes: Sizes,
}

impl Workload {
    /// Returns the request `number`, which is always the same. Requests with different `salt` share
    /// no prefix.
    pub(super) fn request(&self, number: usize, salt: Option<String>) -> RawRequest {
        let base = SamplingParams {
            temperature: 1.0,
            seed: Some(number as u64),
            ignore_eos: true,
            ..SamplingParams::default()
        };
        let params = match number % 4 {
            0 => SamplingParams { temperature: 0.0, ..base },
            1 => SamplingParams { temperature: 0.8, top_p: 0.9, top_k: 50, ..base },
            2 => SamplingParams { presence_penalty: 0.5, repetition_penalty: 1.1, ..base },
            _ => SamplingParams { logprobs: Some(1), ..base },
        };
        RawRequest {
            params,
            max_tokens: Some(self.output_tokens(number)),
            cache_salt: salt,
            ..RawRequest::new(Prompt::Tokens(self.prompt(number)))
        }
    }

    fn prompt(&self, number: usize) -> Vec<TokenId> {
        let token = |i: usize| (i * 31 + number * 101) as u32 % self.vocab_size.max(1);
        (0..self.sizes.prompt_tokens.max(1)).map(token).collect()
    }

    /// Returns half to one and a half times the average, so that requests do not end together.
    fn output_tokens(&self, number: usize) -> u32 {
        let average = self.sizes.output_tokens.max(1);
        (average / 2 + (number as u32 * 7) % average.max(1)).max(1)
    }

    /// Returns the tokens that a request takes if no token is computed twice. The last one is drawn
    /// and not computed.
    pub(super) fn cost(&self, number: usize) -> u64 {
        self.sizes.prompt_tokens.max(1) as u64 + u64::from(self.output_tokens(number)) - 1
    }
}

/// Returns whether an output is complete.
pub(super) fn is_complete(finish: &Option<FinishReason>) -> bool {
    matches!(finish, Some(FinishReason::Length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_are_half_to_one_and_a_half_times_the_average() {
        let sizes = Sizes { prompt_tokens: 10, output_tokens: 64 };
        let workload = Workload { vocab_size: 100, sizes };
        let lengths: Vec<_> = (0..64).map(|number| workload.output_tokens(number)).collect();
        assert_eq!((lengths.iter().min(), lengths.iter().max()), (Some(&32), Some(&95)));
        assert_eq!(workload.cost(0), 10 + 32 - 1);
        let tiny = Sizes { prompt_tokens: 0, output_tokens: 0 };
        let tiny = Workload { vocab_size: 100, sizes: tiny };
        assert_eq!((tiny.cost(5), tiny.request(5, None).max_tokens), (1, Some(1)));
    }
}
