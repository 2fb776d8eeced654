//! `playhouse bench latency`: the time of one batch from its submission to its last token, in an
//! engine of this process. Flags, lines and fields are those of vLLM's command of that name. As
//! there, every round has the same prompts, and prefixes are not cached by default.
//!
//! Beyond vLLM, sizes and lengths may be lists. The engine starts once for all of them.

use std::time::Instant;

use clap::Args;
use indicatif::ProgressBar;
use serde_json::{Map, Value, json};

use super::{
    Report,
    batch::{self, Draws, Shape},
    distribution::{Distribution, percentile_name},
    progress_bar,
    statistics::rounded,
};
use crate::{
    cli::{CliError, engine, flags::EngineFlags, interrupt::or_interrupt, output},
    config::EngineConfig,
    engine::Engine,
};

const EXAMPLES: &str = "\
Examples:
  playhouse bench latency -m models/qwen3          8 requests of 32 and 128 tokens, 30 times
  playhouse bench latency --batch-size 1 --input-len 512 --output-len 1 --num-iters 10
  playhouse bench latency --enable-prefix-caching --batch-size 1,8,32 --output-len 1,65

With lists, each combination has a line. In the last example the prompts are cached, and the
difference between 1 and 65 tokens of output is the time of 64 decode steps.";

/// Percentiles that are shown.
const PERCENTILES: [f64; 6] = [10.0, 25.0, 50.0, 75.0, 90.0, 99.0];

/// Measure how long one batch takes.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LatencyArgs {
    /// Requests of a batch
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', default_value = "8")]
    batch_size: Vec<usize>,
    /// Tokens of a prompt
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', default_value = "32")]
    input_len: Vec<usize>,
    /// Tokens of an output
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', default_value = "128")]
    output_len: Vec<usize>,
    #[command(flatten)]
    draws: Draws,
    /// Batches before the measurement
    #[arg(long, value_name = "N", default_value_t = 10)]
    num_iters_warmup: usize,
    /// Batches that are measured
    #[arg(long, value_name = "N", default_value_t = 30)]
    num_iters: usize,
    /// How to write the result
    #[arg(long, value_enum, default_value_t)]
    output: Report,
    #[command(flatten)]
    pub(crate) engine: EngineFlags,
}

/// One combination of the sizes, and what was measured.
struct Case {
    batch_size: usize,
    shape: Shape,
    /// Seconds of each batch.
    latencies: Vec<f64>,
}

impl LatencyArgs {
    fn cases(&self) -> Result<Vec<Case>, CliError> {
        let mut cases = Vec::new();
        for &batch_size in &self.batch_size {
            for &input_len in &self.input_len {
                for &output_len in &self.output_len {
                    let shape = Shape { input_len, output_len, draws: self.draws };
                    shape.validate()?;
                    cases.push(Case { batch_size, shape, latencies: Vec::new() });
                }
            }
        }
        if self.num_iters == 0 || cases.iter().any(|case| case.batch_size == 0) {
            let message = "--batch-size and --num-iters must be at least 1";
            return Err(CliError::Usage(message.to_owned()));
        }
        Ok(cases)
    }
}

/// Measures and prints.
pub(crate) fn run(args: &LatencyArgs, config: EngineConfig) -> Result<(), CliError> {
    let mut cases = args.cases()?;
    let largest = cases.iter().map(|case| case.batch_size).max().unwrap_or_default();
    let config = batch::with_room(config, largest);
    engine::run(async {
        let engine = or_interrupt(engine::start(config)).await?;
        let measured = or_interrupt(measure(&engine, args, &mut cases)).await;
        engine.shutdown().await;
        measured?;
        match (args.output, cases.as_slice()) {
            (Report::Table, [case]) => output::show(&case.to_text()),
            (Report::Table, cases) => output::show(&table(cases)),
            (Report::Json, [case]) => output::show_json(&case.to_json()),
            (Report::Json, cases) => output::show_json(&cases.iter().map(Case::to_json).collect()),
        }
    })
}

async fn measure(engine: &Engine, args: &LatencyArgs, cases: &mut [Case]) -> Result<(), CliError> {
    let vocab_size = engine.model_info().vocab_size;
    let rounds = args.num_iters_warmup + args.num_iters;
    let bar = progress_bar(rounds * cases.len());
    bar.set_message("batches");
    for case in cases {
        for round in 0..rounds {
            let requests = case.shape.requests(case.batch_size, 0, vocab_size);
            let begun = Instant::now();
            batch::generate(engine, requests, &ProgressBar::hidden()).await?;
            if round >= args.num_iters_warmup {
                case.latencies.push(begun.elapsed().as_secs_f64());
            }
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(())
}

impl Case {
    fn distribution(&self) -> Distribution {
        Distribution::of(self.latencies.iter().copied())
    }

    fn to_text(&self) -> String {
        let all = self.distribution();
        let mut text = format!("Avg latency: {} seconds\n", all.mean());
        for percent in PERCENTILES {
            let name = percentile_name(percent);
            text += &format!("{name}% percentile latency: {} seconds\n", all.percentile(percent));
        }
        text
    }

    fn to_json(&self) -> Value {
        let all = self.distribution();
        let percentile = |percent| (percentile_name(percent), json!(all.percentile(percent)));
        let percentiles: Map<_, _> = PERCENTILES.into_iter().map(percentile).collect();
        json!({
            "avg_latency": all.mean(),
            "latencies": self.latencies,
            "percentiles": percentiles,
            "batch_size": self.batch_size,
            "input_len": self.shape.input_len,
            "output_len": self.shape.output_len,
        })
    }
}

/// Returns a line for each case, in milliseconds.
fn table(cases: &[Case]) -> String {
    let mut text = format!(
        "{:>10}{:>10}{:>11}{:>12}{:>12}{:>12}\n",
        "batch size", "input len", "output len", "median, ms", "least, ms", "most, ms"
    );
    for case in cases {
        let all = case.distribution();
        let ms = |percent| rounded(1e3 * all.percentile(percent));
        text += &format!(
            "{:>10}{:>10}{:>11}{:>12}{:>12}{:>12}\n",
            case.batch_size,
            case.shape.input_len,
            case.shape.output_len,
            ms(50.0),
            ms(0.0),
            ms(100.0)
        );
    }
    text
}
