//! `playhouse bench`: measures this machine and this model.

pub(crate) mod batch;
mod chaos;
pub(crate) mod distribution;
mod kernels;
mod latency;
mod overload;
mod pooling;
mod serve;
mod startup;
mod statistics;
mod throughput;
mod workload;

use std::{path::Path, time::Duration};

use clap::{Args, Subcommand, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};

use super::{CliError, style::shows_bars};
use crate::config::{Config, layer::Entry};

const EXAMPLES: &str = "\
Examples:
  playhouse bench serve --base-url http://127.0.0.1:8000 --num-prompts 64 --max-concurrency 8
  playhouse bench throughput -m models/qwen3       Tokens a second, without a server
  playhouse bench pooling -m models/qwen3-embedding   Texts and tokens a second
  playhouse bench kernels                          Each operation beside the machine's limits
  playhouse bench chaos --kills 1000               What clients notice while actors are killed
  playhouse bench overload --requests 10000        What is served when twice as much is asked for
  playhouse bench chaos -m models/qwen3 --clients 8 --output json

Each benchmark has a --help of its own. Measure a release build on an idle machine.";

/// Measure a server, the engine, its operations, its start, and its behaviour under load and
/// faults.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    command: Bench,
}

#[derive(Debug, Subcommand)]
enum Bench {
    Serve(Box<serve::ServeArgs>),
    Throughput(Box<throughput::ThroughputArgs>),
    Latency(Box<latency::LatencyArgs>),
    Pooling(Box<pooling::PoolingArgs>),
    Startup(startup::StartupArgs),
    Kernels(kernels::KernelsArgs),
    Chaos(Box<chaos::ChaosArgs>),
    Overload(Box<overload::OverloadArgs>),
}

/// The formats of a benchmark's results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Report {
    /// For people.
    #[default]
    Table,
    /// For programs.
    Json,
}

impl BenchArgs {
    /// Returns the settings given.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        match &self.command {
            Bench::Chaos(args) => args.engine.entries(),
            Bench::Overload(args) => args.engine.entries(),
            Bench::Throughput(args) => args.engine.entries(),
            Bench::Latency(args) => args.engine.entries(),
            Bench::Pooling(args) => args.engine.entries(),
            Bench::Kernels(args) => args.entries(),
            // These benchmarks have their engine in another process.
            Bench::Serve(_) | Bench::Startup(_) => Vec::new(),
        }
    }

    /// Returns the settings that the benchmark starts from. Its effects on the engine are not
    /// logged. `latency` and `pooling` cache no prefixes, because the time includes computing all
    /// prompts. `pooling` makes vectors of a model that generates.
    pub(crate) fn defaults(&self) -> Vec<Entry> {
        let mut entries = vec![Entry::of_command("log", "level", "error")];
        if matches!(self.command, Bench::Latency(_) | Bench::Pooling(_)) {
            entries.push(Entry::of_command("engine", "enable_prefix_caching", "false"));
        }
        if matches!(self.command, Bench::Pooling(_)) {
            entries.push(Entry::of_command("engine", "runner", "pooling"));
        }
        entries
    }
}

/// Measures and prints. `file` is the file with further settings of a server, if one was named.
pub(crate) fn run(args: BenchArgs, config: Config, file: Option<&Path>) -> Result<(), CliError> {
    let Config { engine: config, log, .. } = config;
    match args.command {
        Bench::Chaos(args) => chaos::run(&args, config, &log),
        Bench::Overload(args) => overload::run(&args, config),
        Bench::Serve(args) => serve::run(&args),
        Bench::Throughput(args) => throughput::run(&args, config),
        Bench::Latency(args) => latency::run(&args, config),
        Bench::Pooling(args) => pooling::run(&args, config),
        Bench::Startup(args) => startup::run(&args, file),
        Bench::Kernels(args) => kernels::run(&args, &config),
    }
}

/// Returns a bar on a terminal. In a pipe, the bar shows nothing.
pub(crate) fn progress_bar(len: usize) -> ProgressBar {
    if !shows_bars() {
        return ProgressBar::hidden();
    }
    let template = "{msg:<24} {bar:32} {pos} of {len}  {eta}";
    let style =
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::new(len as u64).with_style(style);
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
