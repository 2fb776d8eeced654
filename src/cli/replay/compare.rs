//! Comparison of two programs: each replays the recording and prints a line for each plan and each
//! result. The first line that differs names the step.

use std::{path::Path, process::Command};

use super::{ReplayArgs, run_to};
use crate::{
    api::recording::{Device, Event, Replay, Step, schedule_hash, tokens_hash},
    cli::{CliError, output},
    config::Key,
    engine::KEYS_SETTING,
};

/// Returns the line of an event, or of the difference at which a replay stops.
pub(super) fn line(event: Result<&Event, &str>) -> Option<String> {
    match event {
        Ok(Event::Planned(planned)) => {
            Some(format!("step {} schedule {:016x}", planned.output.step.0, schedule_hash(planned)))
        }
        Ok(Event::Done { step, rows, .. }) => {
            Some(format!("step {} results {:016x}", step.0, tokens_hash(rows)))
        }
        Ok(Event::Input | Event::Stopped(_)) => None,
        Err(difference) => Some(difference.to_owned()),
    }
}

/// Returns the lines of a replay by this program.
pub(super) fn lines(replay: Replay, until: Option<Step>, device: &mut dyn Device) -> Vec<String> {
    let mut lines = Vec::new();
    // The last line shows why it stops.
    let _ = run_to(replay, until, device, |event| {
        lines.extend(line(event));
        Ok(())
    });
    lines
}

/// Lets another program replay the recording, and reports the first line that differs from `ours`.
/// `keys` is the file of keys that opens the recording.
pub(super) fn with(
    program: &Path,
    args: &ReplayArgs,
    keys: Option<&Path>,
    ours: &[String],
) -> Result<(), CliError> {
    let mut command = Command::new(program);
    command.arg("replay").arg(&args.file).arg("--events");
    if args.schedule_only {
        command.arg("--schedule-only");
    }
    if let Some(until) = args.until {
        command.arg("--until").arg(until.to_string());
    }
    for entry in args.engine.entries() {
        command.env(entry.key.variable(), text(&entry.value));
    }
    if let Some(keys) = keys {
        command.env(Key::new("engine", KEYS_SETTING).variable(), keys);
    }
    let ran = command.stderr(std::process::Stdio::inherit()).output();
    let ran = ran.map_err(CliError::io(format!("cannot run {}", program.display())))?;
    let theirs = String::from_utf8_lossy(&ran.stdout);
    let theirs: Vec<&str> = theirs.lines().collect();
    if theirs.is_empty() {
        let what = format!("{} printed no step: {}", program.display(), ran.status);
        return Err(CliError::Replay(what));
    }
    match first_difference(ours, &theirs) {
        None => output::show(&format!("{} lines, all equal\n", ours.len())),
        Some(index) => {
            let words = |line: Option<&str>| line.unwrap_or("nothing more").to_owned();
            Err(CliError::Replay(format!(
                "the programs differ after {index} equal lines: {} here, {} in {}",
                words(ours.get(index).map(String::as_str)),
                words(theirs.get(index).copied()),
                program.display()
            )))
        }
    }
}

/// Returns the index of the first line that is not in both.
fn first_difference(ours: &[String], theirs: &[&str]) -> Option<usize> {
    let num_lines = ours.len().max(theirs.len());
    (0..num_lines).find(|&index| ours.get(index).map(String::as_str) != theirs.get(index).copied())
}

/// Returns a setting's value as a variable has it.
fn text(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_that_differs_is_found() {
        let ours: Vec<String> = ["a", "b", "c"].map(str::to_owned).to_vec();
        assert_eq!(first_difference(&ours, &["a", "b", "c"]), None);
        assert_eq!(first_difference(&ours, &["a", "x", "c"]), Some(1));
        assert_eq!(first_difference(&ours, &["a"]), Some(1));
        assert_eq!(first_difference(&ours, &["a", "b", "c", "d"]), Some(3));
    }
}
