//! `playhouse profile`: where the time of a step goes, over generated requests.

mod report;

use std::{fs::File, io::BufWriter, io::Write as _, path::PathBuf};

use clap::Args;

use super::{
    CliError,
    bench::{
        Report,
        batch::{self, Shape},
        progress_bar,
    },
    engine,
    flags::EngineFlags,
    interrupt::or_interrupt,
    output,
};
use crate::{
    config::{EngineConfig, layer::Entry},
    engine::Engine,
    files,
    profile::{Profile, Profiler},
};

const EXAMPLES: &str = "\
Examples:
  playhouse profile -m models/qwen3                8 requests of 32 and 128 tokens
  playhouse profile --batch-size 1 --input-len 512 --output-len 1 --num-iters 5
  playhouse profile --trace trace.json             To look at in https://ui.perfetto.dev

A step's operations add up to the step: each counts what it took itself, without those within it. To
measure costs some 0.1 µs an operation.";

/// Show where a step's time goes, by operation and by actor.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ProfileArgs {
    /// Requests at a time
    #[arg(long, value_name = "N", default_value_t = 8)]
    batch_size: usize,
    #[command(flatten)]
    shape: Shape,
    /// Batches before the recording
    #[arg(long, value_name = "N", default_value_t = 1)]
    num_iters_warmup: usize,
    /// Batches that are recorded
    #[arg(long, value_name = "N", default_value_t = 1)]
    num_iters: usize,
    /// File for a trace of every operation and message
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// How to write the result
    #[arg(long, value_enum, default_value_t)]
    output: Report,
    #[command(flatten)]
    pub(crate) engine: EngineFlags,
}

/// Returns the settings that a profile starts from: prompts are computed, not taken from the cache.
pub(crate) fn defaults() -> Vec<Entry> {
    vec![
        Entry::of_command("log", "level", "error"),
        Entry::of_command("engine", "enable_prefix_caching", "false"),
    ]
}

/// Records and prints.
pub(crate) fn run(args: &ProfileArgs, config: EngineConfig) -> Result<(), CliError> {
    args.shape.validate()?;
    if args.batch_size == 0 || args.num_iters == 0 {
        let message = "--batch-size and --num-iters must be at least 1";
        return Err(CliError::Usage(message.to_owned()));
    }
    let config = batch::with_room(config, args.batch_size);
    engine::run(async {
        let profiler = Profiler::default();
        let engine = or_interrupt(engine::start_profiled(config, profiler.handlers())).await?;
        let recorded = or_interrupt(record(&engine, &profiler, args)).await;
        engine.shutdown().await;
        let profile = recorded?;
        if let Some(path) = &args.trace {
            let cannot = || CliError::io(format!("cannot write {}", path.display()));
            let write = |file: &mut File| {
                let mut file = BufWriter::new(file);
                profile.write_trace(&mut file).and_then(|()| file.flush())
            };
            files::replace_with(path, write).map_err(cannot())?;
        }
        match args.output {
            Report::Table => output::show(&report::table(&profile)),
            Report::Json => output::show_json(&report::json(&profile)),
        }
    })
}

async fn record(
    engine: &Engine,
    profiler: &Profiler,
    args: &ProfileArgs,
) -> Result<Profile, CliError> {
    let vocab_size = engine.model_info().vocab_size;
    let requests = |round: usize| args.shape.requests(args.batch_size, round as u64, vocab_size);
    let bar = progress_bar((args.num_iters_warmup + args.num_iters) * args.batch_size);
    bar.set_message("requests");
    for round in 0..args.num_iters_warmup {
        batch::generate(engine, requests(args.num_iters + round), &bar).await?;
    }
    let recorded = profiler.record(async {
        for round in 0..args.num_iters {
            batch::generate(engine, requests(round), &bar).await?;
        }
        Ok::<_, CliError>(())
    });
    let (outcome, profile) =
        recorded.await.map_err(|error| CliError::Measure(error.to_string()))?;
    bar.finish_and_clear();
    outcome.map(|()| profile)
}
