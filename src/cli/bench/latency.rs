//! `playhouse bench latency`: the time of one batch from its submission to its last token, in an
//! engine of this process. Flags, lines and fields are those of vLLM's command of that name. As
//! there, prefixes are not cached by default.

use std::time::Instant;

use clap::Args;
use indicatif::ProgressBar;
use serde_json::{Map, Value, json};

use super::{
    Report,
    batch::{self, Shape},
    distribution::{Distribution, percentile_name},
    progress_bar,
};
use crate::{
    cli::{CliError, engine, flags::EngineFlags, interrupt::or_interrupt, output},
    config::EngineConfig,
    engine::Engine,
};

const EXAMPLES: &str = "\
Examples:
  playhouse bench latency -m models/qwen3          8 requests of 32 and 128 tokens, 30 times
  playhouse bench latency --batch-size 1 --input-len 512 --output-len 1 --num-iters 10";

/// Percentiles that are shown.
const PERCENTILES: [f64; 6] = [10.0, 25.0, 50.0, 75.0, 90.0, 99.0];

/// Measure how long one batch takes.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LatencyArgs {
    /// Requests of a batch
    #[arg(long, value_name = "N", default_value_t = 8)]
    batch_size: usize,
    #[command(flatten)]
    shape: Shape,
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

/// Measures and prints.
pub(crate) fn run(args: &LatencyArgs, config: EngineConfig) -> Result<(), CliError> {
    args.shape.validate()?;
    if args.batch_size == 0 || args.num_iters == 0 {
        let message = "--batch-size and --num-iters must be at least 1";
        return Err(CliError::Usage(message.to_owned()));
    }
    let config = batch::with_room(config, args.batch_size);
    engine::run(async {
        let engine = or_interrupt(engine::start(config)).await?;
        let measured = or_interrupt(measure(&engine, args)).await;
        engine.shutdown().await;
        let latencies = measured?;
        match args.output {
            Report::Table => output::show(&to_text(&latencies)),
            Report::Json => output::show_json(&to_json(&latencies)),
        }
    })
}

/// Returns the seconds of each batch.
async fn measure(engine: &Engine, args: &LatencyArgs) -> Result<Vec<f64>, CliError> {
    let vocab_size = engine.model_info().vocab_size;
    let bar = progress_bar(args.num_iters_warmup + args.num_iters);
    bar.set_message("batches");
    let mut latencies = Vec::with_capacity(args.num_iters);
    for round in 0..args.num_iters_warmup + args.num_iters {
        let requests = args.shape.requests(args.batch_size, round as u64, vocab_size);
        let begun = Instant::now();
        batch::generate(engine, requests, &ProgressBar::hidden()).await?;
        if round >= args.num_iters_warmup {
            latencies.push(begun.elapsed().as_secs_f64());
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(latencies)
}

fn to_text(latencies: &[f64]) -> String {
    let all = Distribution::of(latencies.iter().copied());
    let mut text = format!("Avg latency: {} seconds\n", all.mean());
    for percent in PERCENTILES {
        let name = percentile_name(percent);
        text += &format!("{name}% percentile latency: {} seconds\n", all.percentile(percent));
    }
    text
}

fn to_json(latencies: &[f64]) -> Value {
    let all = Distribution::of(latencies.iter().copied());
    let percentile = |percent| (percentile_name(percent), json!(all.percentile(percent)));
    let percentiles: Map<_, _> = PERCENTILES.into_iter().map(percentile).collect();
    json!({"avg_latency": all.mean(), "latencies": latencies, "percentiles": percentiles})
}
