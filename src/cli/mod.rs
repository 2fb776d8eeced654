//! The command line: the arguments, their meaning, and the report of the outcome.
//!
//! `flags` holds exactly what was typed, [`crate::config`] turns it into settings, and each command
//! has a module of its own. Results go to standard output, everything else to standard error.

mod bench;
mod chat;
mod collect_env;
mod config;
mod engine;
#[cfg(unix)]
mod engine_process;
mod eval;
mod failure;
mod file_limit;
mod flags;
mod generate;
mod health;
mod http;
mod interrupt;
mod load_bar;
mod log_level;
mod logging;
mod manual;
mod models;
mod output;
mod pooling;
mod profile;
mod pull;
mod replay;
mod run_batch;
mod serve;
mod sse;
mod streams;
mod style;
mod tokenize;
mod upgrade;
mod vllm_flags;

use std::{ffi::OsString, path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};

use self::{failure::CliError, flags::LogFlags};
#[cfg(unix)]
use crate::engine::ENGINE_PROCESS;
use crate::{
    config::{
        layer::{self, Entry},
        resolve::Resolved,
    },
    parsers::Registry,
    version,
};

const EXAMPLES: &str = "\
Examples:
  playhouse serve                                  Serve the demo model on 127.0.0.1:8000
  playhouse serve models/qwen3 --port 8100         Serve a Hugging Face model folder
  playhouse serve Qwen/Qwen3-0.6B                  Serve a model by name; it is fetched once
  playhouse generate \"Once upon a time\"            Continue a text
  playhouse chat -q \"Who are you?\"                 Ask once
  playhouse rerank \"A query\" \"One text\" \"Another\"  Sort texts by their relevance
  playhouse run-batch -i in.jsonl -o out.jsonl     Answer a file of requests
  playhouse bench chaos                            Kill actors, and see what clients notice
  playhouse eval perplexity book.txt --quantization int8 --against bfloat16
                                                   What quantization costs in quality
  playhouse bench serve --base-url URL             Measure a server
  playhouse profile                                See where a step's time goes
  playhouse replay recordings/FILE                 Run a recording of a server again
  playhouse pull Qwen/Qwen3-0.6B                   Fetch a model, or check and update it
  playhouse models gemma                           See which models are supported
  playhouse models --downloaded                    See which models are on this machine
  playhouse health                                 Ask whether a server lives
  playhouse upgrade                                Let a running server go on as a new binary
  playhouse config --max-num-seqs 64               See what the settings come to
  playhouse completions bash                       Let a shell complete commands and flags

Exit codes:
  0 done   1 failed   2 wrong usage or configuration
  70 the engine's supervisor gave up, or its runtime is frozen   71 out of memory   74 a mapped file was cut
  76 the link of an engine process was broken   101 a panic
  130, 143 ended at once by SIGINT, SIGTERM";

/// Run and serve language models.
#[derive(Debug, Parser)]
#[command(name = "playhouse", version, long_version = version::long(), after_help = EXAMPLES, propagate_version = true, args_override_self = true)]
struct Cli {
    /// TOML file with settings; environment and flags override it [env: PLAYHOUSE_CONFIG]
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    log: LogFlags,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    #[command(flatten)]
    Configured(Configured),
    Completions(manual::CompletionsArgs),
    Man(manual::ManArgs),
    Health(health::HealthArgs),
    Upgrade(upgrade::UpgradeArgs),
}

/// The commands that use settings.
#[derive(Debug, Subcommand)]
enum Configured {
    Serve(Box<serve::ServeArgs>),
    Generate(Box<generate::GenerateArgs>),
    Chat(Box<chat::ChatArgs>),
    Embed(Box<pooling::EmbedArgs>),
    Classify(Box<pooling::ClassifyArgs>),
    Score(Box<pooling::ScoreArgs>),
    Rerank(Box<pooling::RerankArgs>),
    RunBatch(Box<run_batch::RunBatchArgs>),
    Bench(Box<bench::BenchArgs>),
    Eval(Box<eval::EvalArgs>),
    Profile(Box<profile::ProfileArgs>),
    Replay(Box<replay::ReplayArgs>),
    Tokenize(tokenize::TokenizeArgs),
    CollectEnv(collect_env::CollectEnvArgs),
    Pull(pull::PullArgs),
    Models(models::ModelsArgs),
    Config(Box<config::ConfigArgs>),
}

/// Runs the command of the process's arguments.
#[must_use]
pub fn main() -> ExitCode {
    // It is no command for users, so it has no help and no flags.
    #[cfg(unix)]
    if std::env::args_os().nth(1).is_some_and(|command| command == ENGINE_PROCESS) {
        return engine_process::main();
    }
    let (arguments, notes) = match vllm_flags::sort(std::env::args_os()) {
        Ok(sorted) => sorted,
        Err(error) => return error.report(),
    };
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => {
            notes.iter().for_each(|note| output::tell(format_args!("note: {note}")));
            let is_serve = matches!(cli.command, Command::Configured(Configured::Serve(_)));
            if is_serve {
                note_variables();
            }
            cli
        }
        Err(error) => {
            // Help and version are "errors" too. If even printing fails, the failure cannot be
            // reported.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2));
        }
    };
    let _flush = logging::FlushAtEnd;
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.report(),
    }
}

/// Names the variables of vLLM that are set.
fn note_variables() {
    // A name or a value that is not UTF-8 is none of vLLM's.
    let text = |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value));
    let set: Vec<(String, String)> = std::env::vars_os()
        .filter_map(text)
        .map(|(name, value)| (name, value.to_string_lossy().into_owned()))
        .collect();
    let set = set.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    for note in vllm_flags::notes_of_variables(set) {
        output::tell(format_args!("note: {note}"));
    }
}

fn run(cli: Cli) -> Result<(), CliError> {
    match cli.command {
        Command::Configured(command) => configured(command, cli.config, &cli.log),
        Command::Completions(args) => manual::completions(&args),
        Command::Man(args) => manual::man(&args),
        Command::Health(args) => health::run(&args),
        Command::Upgrade(args) => upgrade::run(&args),
    }
}

fn configured(command: Configured, file: Option<PathBuf>, log: &LogFlags) -> Result<(), CliError> {
    let flags = match &command {
        Configured::Serve(args) => args.entries(),
        Configured::Generate(args) => args.engine.entries(),
        Configured::Chat(args) => args.entries(),
        Configured::Embed(args) => args.flags.engine.entries(),
        Configured::Classify(args) => args.flags.engine.entries(),
        Configured::Score(args) => args.flags.engine.entries(),
        Configured::Rerank(args) => args.flags.engine.entries(),
        Configured::RunBatch(args) => args.engine.entries(),
        Configured::Bench(args) => args.entries(),
        Configured::Eval(args) => args.entries(),
        Configured::Profile(args) => args.engine.entries(),
        Configured::Replay(args) => args.engine.entries(),
        Configured::Config(args) => args.entries(),
        Configured::Tokenize(args) => args.entries(),
        Configured::Pull(args) => args.entries(),
        Configured::Models(args) => args.hub.entries(),
        Configured::CollectEnv(_) => Vec::new(),
    };
    let defaults = match &command {
        Configured::Bench(args) => args.defaults(),
        Configured::Profile(_) => profile::defaults(),
        Configured::RunBatch(_) => run_batch::defaults(),
        Configured::Replay(args) => {
            // The file of keys opens the recording that has the other settings.
            let resolved = resolve(Vec::new(), file.clone(), flags.clone(), log)?;
            args.defaults(resolved.config.engine.record_key_file.as_deref())
        }
        Configured::Embed(_)
        | Configured::Classify(_)
        | Configured::Score(_)
        | Configured::Rerank(_) => pooling::defaults(),
        _ => Vec::new(),
    };
    let resolved = resolve(defaults, file.clone(), flags, log)?;
    // Other commands may wait until a line is read.
    if matches!(command, Configured::Serve(_)) {
        logging::detach()?;
    }
    logging::install(&resolved.config.log)?;
    match command {
        Configured::Serve(_) => serve::run(resolved.config),
        Configured::Generate(args) => generate::run(*args, resolved.config.engine),
        Configured::Chat(args) => chat::run(*args, resolved.config.engine),
        Configured::Embed(args) => pooling::embed(&args, resolved.config.engine),
        Configured::Classify(args) => pooling::classify(&args, resolved.config.engine),
        Configured::Score(args) => pooling::score(&args, resolved.config.engine),
        Configured::Rerank(args) => pooling::rerank(&args, resolved.config.engine),
        Configured::RunBatch(args) => run_batch::run(*args, resolved.config),
        Configured::Bench(args) => bench::run(*args, resolved.config, file.as_deref()),
        Configured::Eval(args) => eval::run(*args, resolved.config.engine),
        Configured::Profile(args) => profile::run(&args, resolved.config.engine),
        Configured::Replay(args) => replay::run(&args, resolved.config.engine),
        Configured::Tokenize(args) => tokenize::run(args, resolved.config.engine),
        Configured::CollectEnv(args) => collect_env::run(&args),
        Configured::Pull(args) => pull::run(&args, &resolved.config.engine),
        Configured::Models(args) => models::run(&args, &resolved.config.engine),
        Configured::Config(args) => config::run(&args, &resolved),
    }
}

/// Merges the sources: defaults < file < environment < flags.
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
    let resolved = Resolved::new(entries)?;
    resolved.validate_parsers(&Registry::default())?;
    Ok(resolved)
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
