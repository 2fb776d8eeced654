//! `playhouse bench pooling`: requests and tokens a second of each pooling of a model, in an engine
//! of this process, without a server.

use std::time::{Duration, Instant};

use clap::Args;
use futures_util::{StreamExt, pin_mut};
use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use serde_json::{Value, json};

use super::{Report, progress_bar, statistics::rounded};
use crate::{
    api::{PoolingParams, PoolingTask, Prompt, RawRequest},
    cli::{CliError, engine, flags::EngineFlags, interrupt::or_interrupt, output},
    config::EngineConfig,
    engine::Engine,
};

const EXAMPLES: &str = "\
Examples:
  playhouse bench pooling                          256 texts of 128 tokens of the demo model
  playhouse bench pooling -m models/qwen3-embedding --num-prompts 64 --input-len 512
  playhouse bench pooling -m models/reranker --output json

A model has a row for each of its tasks: embed and token_embed, or classify and token_classify. A
score of a classifier is one classify, and that of vectors two embed.";

/// Measure poolings a second without a server.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct PoolingArgs {
    /// Texts of each task, all in one call
    #[arg(long, value_name = "N", default_value_t = 256)]
    num_prompts: usize,
    /// Tokens of a text
    #[arg(long, value_name = "N", default_value_t = 128)]
    input_len: usize,
    /// Seed of the texts
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// How to write the result
    #[arg(long, value_enum, default_value_t)]
    output: Report,
    #[command(flatten)]
    pub(crate) engine: EngineFlags,
}

/// The figures of one task.
struct Row {
    task: PoolingTask,
    elapsed: Duration,
    requests: usize,
    tokens: usize,
}

/// Measures and prints.
pub(crate) fn run(args: &PoolingArgs, config: EngineConfig) -> Result<(), CliError> {
    if args.num_prompts == 0 || args.input_len == 0 {
        let message = "--num-prompts and --input-len must be at least 1";
        return Err(CliError::Usage(message.to_owned()));
    }
    engine::run(async {
        let engine = or_interrupt(engine::start(config)).await?;
        let measured = or_interrupt(measure(&engine, args)).await;
        engine.shutdown().await;
        let rows = measured?;
        match args.output {
            Report::Table => output::show(&table(&rows)),
            Report::Json => output::show_json(&rows.iter().map(Row::to_json).collect()),
        }
    })
}

async fn measure(engine: &Engine, args: &PoolingArgs) -> Result<Vec<Row>, CliError> {
    let mut rows = Vec::new();
    for head in &engine.model_info().heads.pooling {
        // The first step is slower, because the machine is cold.
        pool(engine, head.task, args, 1, 1).await?;
        let begun = Instant::now();
        let tokens = pool(engine, head.task, args, args.num_prompts, 0).await?;
        let (elapsed, requests) = (begun.elapsed(), args.num_prompts);
        rows.push(Row { task: head.task, elapsed, requests, tokens });
    }
    Ok(rows)
}

/// Pools `count` random texts. Returns the number of their tokens.
async fn pool(
    engine: &Engine,
    task: PoolingTask,
    args: &PoolingArgs,
    count: usize,
    round: u64,
) -> Result<usize, CliError> {
    let vocab_size = engine.model_info().vocab_size.max(1);
    let mut rng = StdRng::seed_from_u64(args.seed.wrapping_add((round << 32) + task as u64));
    let requests = (0..count).map(move |_| {
        let prompt = (0..args.input_len).map(|_| rng.random_range(0..vocab_size));
        RawRequest::pool(Prompt::Tokens(prompt.collect()), PoolingParams::new(task))
    });
    let bar = progress_bar(count);
    bar.set_message(task.as_str());
    let results = engine.pool_stream(requests);
    pin_mut!(results);
    let mut tokens = 0;
    while let Some(result) = results.next().await {
        tokens += result?.prompt_token_ids.len();
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(tokens)
}

impl Row {
    fn per_s(&self, count: usize) -> f64 {
        count as f64 / self.elapsed.as_secs_f64()
    }

    fn to_json(&self) -> Value {
        json!({
            "task": self.task.as_str(),
            "elapsed_time": self.elapsed.as_secs_f64(),
            "num_requests": self.requests,
            "total_input_tokens": self.tokens,
            "requests_per_second": rounded(self.per_s(self.requests)),
            "tokens_per_second": rounded(self.per_s(self.tokens)),
        })
    }
}

fn table(rows: &[Row]) -> String {
    let mut text = format!("{:<16}{:>14}{:>14}\n", "task", "requests/s", "tokens/s");
    for row in rows {
        let (requests, tokens) = (row.per_s(row.requests), row.per_s(row.tokens));
        text.push_str(&format!("{:<16}{requests:>14.2}{tokens:>14.2}\n", row.task.as_str()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_counts_over_time() {
        let elapsed = Duration::from_secs(2);
        let row = Row { task: PoolingTask::Embed, elapsed, requests: 10, tokens: 1000 };
        assert_eq!(row.to_json()["requests_per_second"], 5.0);
        assert_eq!(row.to_json()["tokens_per_second"], 500.0);
        assert!(table(&[row]).contains("embed                     5.00        500.00"));
    }
}
