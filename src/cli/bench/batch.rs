//! Requests that are submitted at once to an engine of this process, with complete outputs.

use clap::Args;
use indicatif::ProgressBar;
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};

use crate::api::{FinishReason, Prompt, RawRequest, SamplingParams, TokenId};
use crate::{
    cli::{CliError, streams::read_ahead},
    config::EngineConfig,
    engine::Engine,
};

/// Lengths of prompts and outputs, and the draws of tokens.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Shape {
    /// Tokens of a prompt
    #[arg(long, value_name = "N", default_value_t = 32)]
    pub(crate) input_len: usize,
    /// Tokens of an output
    #[arg(long, value_name = "N", default_value_t = 128)]
    pub(crate) output_len: usize,
    #[command(flatten)]
    pub(crate) draws: Draws,
}

/// How tokens are drawn: those of prompts, and those of outputs.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Draws {
    /// 0 takes the likeliest token
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    pub(crate) temperature: f32,
    /// Seed of prompts and draws
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
}

impl Shape {
    /// Rejects lengths of 0, which leave nothing to measure.
    pub(crate) fn validate(&self) -> Result<(), CliError> {
        if self.input_len == 0 || self.output_len == 0 {
            let message = "--input-len and --output-len must be at least 1";
            return Err(CliError::Usage(message.to_owned()));
        }
        Ok(())
    }

    /// Returns `count` requests of random tokens. Each `round` has different ones.
    pub(crate) fn requests(&self, count: usize, round: u64, vocab_size: u32) -> Vec<RawRequest> {
        let mut rng = StdRng::seed_from_u64(self.draws.seed.wrapping_add(round << 32));
        let request = |number: usize| {
            let prompt = (0..self.input_len).map(|_| rng.random_range(0..vocab_size.max(1)));
            RawRequest {
                params: SamplingParams {
                    temperature: self.draws.temperature,
                    seed: Some(self.draws.seed.wrapping_add(number as u64)),
                    ignore_eos: true,
                    ..SamplingParams::default()
                },
                max_tokens: u32::try_from(self.output_len).ok(),
                ..RawRequest::new(Prompt::Tokens(prompt.collect::<Vec<TokenId>>()))
            }
        };
        (0..count).map(request).collect()
    }
}

/// Returns `config` for an engine in which `count` requests may wait.
pub(crate) fn with_room(config: EngineConfig, count: usize) -> EngineConfig {
    EngineConfig { max_num_requests: config.max_num_requests.max(count), ..config }
}

/// Submits all requests and waits until all are complete. Returns the number of tokens. `bar`
/// counts the requests.
pub(crate) async fn generate(
    engine: &Engine,
    requests: Vec<RawRequest>,
    bar: &ProgressBar,
) -> Result<usize, CliError> {
    let mut choices = Vec::with_capacity(requests.len());
    for request in requests {
        choices.extend(engine.submit(request).await?.choices.into_iter().map(read_ahead));
    }
    let mut tokens = 0;
    for mut choice in choices {
        let finish = loop {
            match choice.recv().await {
                None => break None,
                Some(delta) => {
                    tokens += delta.tokens.len();
                    if delta.finish.is_some() {
                        break delta.finish;
                    }
                }
            }
        };
        match finish {
            Some(FinishReason::Length) => bar.inc(1),
            Some(FinishReason::Error(failure)) => return Err(CliError::Ended(failure.to_string())),
            other => {
                let how = other.map_or("without a reason", |finish| finish.as_str());
                return Err(CliError::Ended(format!("it ended before its length: {how}")));
            }
        }
    }
    Ok(tokens)
}
