//! `playhouse bench`: what this machine and this model do, measured.

mod chaos;
mod overload;
mod statistics;
mod workload;

use std::{io::IsTerminal, time::Duration};

use clap::{Args, Subcommand, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};

use super::CliError;
use crate::config::{EngineConfig, Key, Origin, layer::Entry};

const EXAMPLES: &str = "\
Examples:
  playhouse bench chaos --kills 1000               What clients notice while actors are killed
  playhouse bench overload --requests 10000        What is served when twice as much is asked for
  playhouse bench chaos -m models/qwen3 --clients 8 --output json

Each benchmark has a --help of its own. Measure a release build on an idle machine.";

/// Measure what the engine does under strain.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    command: Bench,
}

#[derive(Debug, Subcommand)]
enum Bench {
    Chaos(chaos::ChaosArgs),
    Overload(overload::OverloadArgs),
}

/// How a benchmark's results are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum Report {
    /// For people.
    #[default]
    Table,
    /// For programs.
    Json,
}

impl BenchArgs {
    /// The settings given.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        match &self.command {
            Bench::Chaos(args) => args.engine.entries(),
            Bench::Overload(args) => args.engine.entries(),
        }
    }
}

/// Settings that a benchmark starts from: what it does to the engine is not worth a line each.
pub(crate) fn defaults() -> Vec<Entry> {
    let key = Key::new("log", "level");
    vec![Entry { key, value: "error".into(), origin: Origin::Default }]
}

/// Measures and prints.
pub(crate) fn run(args: BenchArgs, config: EngineConfig) -> Result<(), CliError> {
    match args.command {
        Bench::Chaos(args) => chaos::run(&args, config),
        Bench::Overload(args) => overload::run(&args, config),
    }
}

/// A bar on a terminal; in a pipe, one that shows nothing.
pub(super) fn progress_bar(len: usize) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let template = "{msg:<24} {bar:32} {pos} of {len}  {eta}";
    let style =
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::new(len as u64).with_style(style);
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
