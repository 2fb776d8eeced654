//! `playhouse replay`: runs a recording again, and compares each step.

mod compare;
mod file;
mod report;
mod step_view;

use std::path::{Path, PathBuf};

use clap::Args;

use self::report::Outcome;
use super::{
    CliError, engine,
    flags::EngineFlags,
    load_bar::LoadBar,
    output::{self, Format},
};
use crate::{
    api::recording::{Device, Entry as Recorded, Event, NoDevice, Replay, Step},
    config::{EngineConfig, layer::Entry},
    engine::replay::ModelDevice,
};

const EXAMPLES: &str = "\
Examples:
  playhouse serve --record recordings              Record each engine
  playhouse replay recordings/FILE                 Run it again, and compare each step and token
  playhouse replay FILE --schedule-only            Without a model: compare the schedule
  playhouse replay FILE --step                     Look at queues, blocks and tokens step by step
  playhouse replay FILE --diff ./playhouse-old     The first step that another program does differently
  playhouse replay FILE --redact OUT               Without texts and tokens, to attach to a report
  playhouse replay FILE --record-key-file KEY      A recording that is encrypted

The model's settings are those of the recording. Flags, the environment and --config override them.

Exit code 1: a step differs, or the recording cannot be read.";

/// Run a recording again, and compare each step.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ReplayArgs {
    /// Recording that a server made with --record
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Load no model: take the tokens from the recording and compare the schedule
    #[arg(long)]
    schedule_only: bool,
    /// Stop after the results of this step
    #[arg(long, value_name = "STEP")]
    until: Option<u64>,
    /// Show queues, blocks and tokens of each step; on a terminal, one step at a time. Loads no
    /// model
    #[arg(long, group = "form")]
    step: bool,
    /// Print a line of hashes for each plan and each result
    #[arg(long, group = "form")]
    events: bool,
    /// Find the first step that this other playhouse program does differently
    #[arg(long, value_name = "PROGRAM", group = "form")]
    diff: Option<PathBuf>,
    /// Write the recording without token ids and texts to a new file, and replay nothing
    #[arg(long, value_name = "OUT", group = "form")]
    redact: Option<PathBuf>,
    /// How to write the result
    #[arg(long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    pub(crate) engine: EngineFlags,
}

impl ReplayArgs {
    /// Returns the settings that the replay starts from: those of the recorded engine. `keys` is a
    /// file of keys. A recording that cannot be read has none; the replay itself then reports it.
    pub(crate) fn defaults(&self, keys: Option<&Path>) -> Vec<Entry> {
        file::settings(&self.file, keys)
    }
}

/// Replays and prints.
pub(crate) fn run(args: &ReplayArgs, config: EngineConfig) -> Result<(), CliError> {
    let keys = config.record_key_file.clone();
    let scan = file::read(&args.file, keys.as_deref())?;
    if let Some(out) = &args.redact {
        return file::redact(scan, out);
    }
    let end = file::end(&scan);
    let replay = Replay::new(scan).map_err(|error| CliError::Replay(error.to_string()))?;
    if args.step {
        return step_view::run(replay, args.until.map(Step), args.output);
    }
    let mut device = device(args, config, &replay)?;
    let (until, device) = (args.until.map(Step), &mut *device);
    if let Some(program) = &args.diff {
        let lines = compare::lines(replay, until, device);
        return compare::with(program, args, keys.as_deref(), &lines);
    }
    if args.events {
        return run_to(replay, until, device, |event| match compare::line(event) {
            Some(line) => output::show(&format!("{line}\n")),
            None => Ok(()),
        })
        .map(drop);
    }
    let mut outcome = run_to(replay, until, device, |_| Ok(()))?;
    (outcome.end, outcome.has_model) = (end, !args.schedule_only);
    outcome.show(args.output)
}

/// Returns the device of a replay: a loaded model, or none.
fn device(
    args: &ReplayArgs,
    config: EngineConfig,
    replay: &Replay,
) -> Result<Box<dyn Device>, CliError> {
    if args.schedule_only {
        return Ok(Box::new(NoDevice));
    }
    let began = replay.began();
    let load = async {
        let bar = LoadBar::new();
        Ok(ModelDevice::load(config, began, bar.listener()))
    };
    let device = engine::run(load)?.map_err(CliError::from)?;
    for difference in device.differences() {
        output::tell(format_args!("note: tokens may differ: {difference}"));
    }
    Ok(Box::new(device))
}

/// Replays up to the results of a step, or to the end of the recording.
fn run_to(
    mut replay: Replay,
    until: Option<Step>,
    device: &mut dyn Device,
    mut seen: impl FnMut(Result<&Event, &str>) -> Result<(), CliError>,
) -> Result<Outcome, CliError> {
    let mut outcome = Outcome::default();
    while !is_past(&replay, until) {
        match replay.advance(device) {
            Ok(Some(event)) => {
                outcome.add(&event);
                seen(Ok(&event))?;
            }
            Ok(None) => break,
            Err(error) => {
                let error = error.to_string();
                seen(Err(&error))?;
                return Err(CliError::Replay(error));
            }
        }
    }
    (outcome.num_requests, outcome.num_steps) = (replay.num_requests(), replay.num_steps());
    Ok(outcome)
}

/// Returns whether the next entry begins another step than those up to `until`, and none of these
/// is awaited.
fn is_past(replay: &Replay, until: Option<Step>) -> bool {
    let scheduler = replay.scheduler();
    let begins = matches!(replay.peek(), Some(Recorded::StepBegan { .. }));
    until.is_some_and(|until| {
        let is_awaited = scheduler.step_in_flight().is_some_and(|step| step <= until);
        begins && scheduler.step() >= until && !is_awaited
    })
}
