//! `playhouse bench throughput`: tokens a second of an engine in this process under more requests
//! than it can run at once. Flags, line and fields are those of vLLM's command of that name.

use std::time::{Duration, Instant};

use clap::Args;
use indicatif::ProgressBar;
use serde_json::{Value, json};

use super::{
    Report,
    batch::{self, Shape},
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
  playhouse bench throughput                       1,000 requests of 32 and 128 tokens
  playhouse bench throughput -m models/qwen3 --num-prompts 64 --input-len 512 --output-len 64";

/// Measure tokens a second without a server.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ThroughputArgs {
    /// Requests, all submitted at once
    #[arg(long, value_name = "N", default_value_t = 1000)]
    num_prompts: usize,
    #[command(flatten)]
    shape: Shape,
    /// How to write the result
    #[arg(long, value_enum, default_value_t)]
    output: Report,
    #[command(flatten)]
    pub(crate) engine: EngineFlags,
}

/// Measures and prints.
pub(crate) fn run(args: &ThroughputArgs, config: EngineConfig) -> Result<(), CliError> {
    args.shape.validate()?;
    if args.num_prompts == 0 {
        return Err(CliError::Usage("--num-prompts must be at least 1".to_owned()));
    }
    let config = batch::with_room(config, args.num_prompts);
    engine::run(async {
        let engine = or_interrupt(engine::start(config)).await?;
        let measured = or_interrupt(measure(&engine, args)).await;
        engine.shutdown().await;
        let figures = measured?;
        match args.output {
            Report::Table => output::show(&figures.to_text()),
            Report::Json => output::show_json(&figures.to_json()),
        }
    })
}

struct Figures {
    elapsed: Duration,
    requests: usize,
    input_tokens: usize,
    output_tokens: usize,
}

async fn measure(engine: &Engine, args: &ThroughputArgs) -> Result<Figures, CliError> {
    let vocab_size = engine.model_info().vocab_size;
    // The first step is slower, because the machine is cold.
    let warm_up = Shape { output_len: 2, ..args.shape };
    batch::generate(engine, warm_up.requests(1, 1, vocab_size), &ProgressBar::hidden()).await?;
    let bar = progress_bar(args.num_prompts);
    bar.set_message("requests");
    let requests = args.shape.requests(args.num_prompts, 0, vocab_size);
    let begun = Instant::now();
    let output_tokens = batch::generate(engine, requests, &bar).await?;
    let input_tokens = args.num_prompts * args.shape.input_len;
    let elapsed = begun.elapsed();
    bar.finish_and_clear();
    Ok(Figures { elapsed, requests: args.num_prompts, input_tokens, output_tokens })
}

impl Figures {
    fn per_s(&self, count: usize) -> f64 {
        count as f64 / self.elapsed.as_secs_f64()
    }

    fn to_text(&self) -> String {
        format!(
            "Throughput: {:.2} requests/s, {:.2} total tokens/s, {:.2} output tokens/s\n\
             Total num prompt tokens:  {}\nTotal num output tokens:  {}\n",
            self.per_s(self.requests),
            self.per_s(self.input_tokens + self.output_tokens),
            self.per_s(self.output_tokens),
            self.input_tokens,
            self.output_tokens,
        )
    }

    fn to_json(&self) -> Value {
        let total = self.input_tokens + self.output_tokens;
        json!({
            "elapsed_time": self.elapsed.as_secs_f64(),
            "num_requests": self.requests,
            "total_num_tokens": total,
            "total_input_tokens": self.input_tokens,
            "total_output_tokens": self.output_tokens,
            "requests_per_second": rounded(self.per_s(self.requests)),
            "tokens_per_second": rounded(self.per_s(total)),
            "output_tokens_per_second": rounded(self.per_s(self.output_tokens)),
        })
    }
}
