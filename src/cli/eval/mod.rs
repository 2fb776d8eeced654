//! `playhouse eval`: measures the quality of a model's predictions.

mod perplexity;
mod score;

use clap::{Args, Subcommand};

use super::CliError;
use crate::config::{EngineConfig, layer::Entry};

const EXAMPLES: &str = "\
Examples:
  playhouse eval perplexity book.txt               How well the demo model predicts a text
  playhouse eval perplexity book.txt -m models/qwen3 --quantization int4 --against bfloat16

Each evaluation has a --help of its own.";

/// Measure the quality of a model's predictions.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct EvalArgs {
    #[command(subcommand)]
    command: Eval,
}

#[derive(Debug, Subcommand)]
enum Eval {
    Perplexity(perplexity::PerplexityArgs),
}

impl EvalArgs {
    /// Returns the settings given.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        match &self.command {
            Eval::Perplexity(args) => args.engine.entries(),
        }
    }
}

/// Measures and prints.
pub(crate) fn run(args: EvalArgs, config: EngineConfig) -> Result<(), CliError> {
    match args.command {
        Eval::Perplexity(args) => perplexity::run(&args, config),
    }
}
