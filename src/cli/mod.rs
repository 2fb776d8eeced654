//! The command line: what was typed, what it means, and how the outcome is told.
//!
//! `flags` holds exactly what was typed, [`crate::config`] makes settings of it, and each command
//! has a module of its own. Results go to standard output, everything else to standard error.

mod bench;
mod chat;
mod collect_env;
mod config;
mod engine;
mod eval;
mod failure;
mod flags;
mod generate;
mod interrupt;
mod logging;
mod output;
mod profile;
mod run_batch;
mod serve;
mod tokenize;

use std::{path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};

use self::{failure::CliError, flags::LogFlags};
use crate::config::{
    layer::{self, Entry},
    resolve::Resolved,
};

const EXAMPLES: &str = "\
Examples:
  playhouse serve                                  Serve the demo model on 127.0.0.1:8000
  playhouse serve models/qwen3 --port 8100         Serve a Hugging Face model folder
  playhouse generate \"Once upon a time\"            Continue a text
  playhouse chat -q \"Who are you?\"                 Ask once
  playhouse run-batch -i in.jsonl -o out.jsonl     Answer a file of requests
  playhouse bench chaos                            Kill actors, and see what clients notice
  playhouse eval perplexity book.txt --quantization int8 --against bfloat16
                                                   What quantization costs in quality
  playhouse bench serve --base-url URL             Measure a server
  playhouse profile                                See where a step's time goes
  playhouse config --max-num-seqs 64               See what the settings come to

Exit codes:
  0 done   1 failed   2 wrong usage or configuration
  70 the engine's supervisor gave up   130, 143 ended at once by SIGINT, SIGTERM";

/// Run and serve language models.
#[derive(Debug, Parser)]
#[command(name = "playhouse", version, after_help = EXAMPLES, propagate_version = true)]
struct Cli {
    /// TOML file with settings; environment and flags go over it [env: PLAYHOUSE_CONFIG]
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    log: LogFlags,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(Box<serve::ServeArgs>),
    Generate(Box<generate::GenerateArgs>),
    Chat(Box<chat::ChatArgs>),
    RunBatch(Box<run_batch::RunBatchArgs>),
    Bench(Box<bench::BenchArgs>),
    Eval(Box<eval::EvalArgs>),
    Profile(Box<profile::ProfileArgs>),
    Tokenize(tokenize::TokenizeArgs),
    CollectEnv(collect_env::CollectEnvArgs),
    Config(Box<config::ConfigArgs>),
}

/// Does what the process's arguments say.
#[must_use]
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are "errors" too; where even printing fails there is nobody to tell.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.report(),
    }
}

fn run(cli: Cli) -> Result<(), CliError> {
    let flags = match &cli.command {
        Command::Serve(args) => args.entries(),
        Command::Generate(args) => args.engine.entries(),
        Command::Chat(args) => args.engine.entries(),
        Command::RunBatch(args) => args.engine.entries(),
        Command::Bench(args) => args.entries(),
        Command::Eval(args) => args.entries(),
        Command::Profile(args) => args.engine.entries(),
        Command::Config(args) => args.entries(),
        Command::Tokenize(args) => args.entries(),
        Command::CollectEnv(_) => Vec::new(),
    };
    let defaults = match &cli.command {
        Command::Bench(args) => args.defaults(),
        Command::Profile(_) => profile::defaults(),
        Command::RunBatch(_) => run_batch::defaults(),
        _ => Vec::new(),
    };
    let resolved = resolve(defaults, cli.config, flags, &cli.log)?;
    logging::install(&resolved.config.log)?;
    match cli.command {
        Command::Serve(_) => serve::run(resolved.config),
        Command::Generate(args) => generate::run(*args, resolved.config.engine),
        Command::Chat(args) => chat::run(*args, resolved.config.engine),
        Command::RunBatch(args) => run_batch::run(*args, resolved.config),
        Command::Bench(args) => bench::run(*args, resolved.config.engine),
        Command::Eval(args) => eval::run(*args, resolved.config.engine),
        Command::Profile(args) => profile::run(&args, resolved.config.engine),
        Command::Tokenize(args) => tokenize::run(args, &resolved.config.engine),
        Command::CollectEnv(args) => collect_env::run(&args),
        Command::Config(args) => config::run(&args, &resolved),
    }
}

/// Defaults < file < environment < flags.
fn resolve(
    defaults: Vec<Entry>,
    file: Option<PathBuf>,
    flags: Vec<Entry>,
    log: &LogFlags,
) -> Result<Resolved, CliError> {
    let (environment, named) = layer::from_environment(std::env::vars_os())?;
    let mut entries = defaults;
    if let Some(path) = file.or(named) {
        entries.extend(layer::from_file(&path)?);
    }
    entries.extend(environment);
    entries.extend(flags);
    entries.extend(log.entries());
    Ok(Resolved::new(entries)?)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_commands_are_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_shows_examples_in_its_help() {
        for command in Cli::command().get_subcommands() {
            let help = command.clone().render_long_help().to_string();
            assert!(help.contains("Examples:"), "{}", command.get_name());
        }
    }
}
