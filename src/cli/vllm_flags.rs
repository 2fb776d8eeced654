//! Flags of vLLM's command line that have no meaning here. Some change nothing, and are accepted
//! with a note, so that a command line for vLLM works. Others ask for something that is done in
//! another way here, and the error says how.

use std::ffi::OsString;

use super::CliError;

/// The meaning of a flag of vLLM here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    /// A switch that changes nothing, and why.
    Switch(&'static str),
    /// The same with a value.
    Valued(&'static str),
    /// Refused, with the flag or the way to use.
    Instead(&'static str),
}

use Meaning::{Instead, Switch, Valued};

const NO_PYTHON: &str = "no code of a model is run";
const NO_GRAPHS: &str = "kernels are compiled before the program is";
const ONE_WORKER: &str = "a server has one worker";

/// The flags, without the dashes.
const FLAGS: &[(&str, Meaning)] = &[
    ("trust-remote-code", Switch(NO_PYTHON)),
    ("compilation-config", Valued(NO_GRAPHS)),
    ("disable-custom-all-reduce", Switch(ONE_WORKER)),
    ("distributed-executor-backend", Valued(ONE_WORKER)),
    ("worker-cls", Valued(ONE_WORKER)),
    ("swap-space", Valued("preempted requests are computed again")),
    ("disable-log-requests", Switch("requests are logged at --log-level debug alone")),
    ("no-enable-log-requests", Switch("requests are logged at --log-level debug alone")),
    ("disable-log-stats", Switch("--stats-interval-secs 0 turns the lines about throughput off")),
    ("disable-uvicorn-access-log", Switch("there is no log of accesses")),
    ("uvicorn-log-level", Valued("--log-level sets the level")),
    ("tokenizer-mode", Valued("the tokenizer's files say how it works")),
    ("config-format", Valued("the format of a model's files is found by itself")),
    ("use-tqdm-on-load", Switch("a bar shows the progress on terminals")),
    ("cpu-offload-gb", Instead("the weights stay on one device: --device cpu, or --quantization")),
    ("tensor-parallel-size", Instead("a model runs on one device, which --device names")),
    ("pipeline-parallel-size", Instead("a model runs on one device, which --device names")),
    ("enable-expert-parallel", Instead("a model runs on one device, which --device names")),
    ("kv-transfer-config", Instead("no server computes prompts for another")),
    ("enable-sleep-mode", Switch("/sleep works on every server")),
    ("collect-detailed-traces", Instead("`playhouse profile` shows the times of a step")),
    ("show-hidden-metrics-for-version", Valued("no metric is hidden")),
];

/// The flags that are one in vLLM with a value of one.
const COUNTS: [&str; 2] = ["tensor-parallel-size", "pipeline-parallel-size"];
/// vLLM's other names of flags.
const ALIASES: [(&str, &str); 4] = [
    ("-tp", COUNTS[0]),
    ("-pp", COUNTS[1]),
    ("-dp", "data-parallel-size"),
    ("--disable-frontend-multiprocessing", "single-process"),
];

/// Returns the arguments without flags that change nothing, and a note for each of those.
///
/// # Errors
/// A flag whose effect is reached in another way.
pub(super) fn sort(
    arguments: impl IntoIterator<Item = OsString>,
) -> Result<(Vec<OsString>, Vec<String>), CliError> {
    let (mut kept, mut notes) = (Vec::new(), Vec::new());
    let mut arguments = arguments.into_iter().peekable();
    // After `--`, arguments are no flags of this command.
    let mut is_over = false;
    while let Some(argument) = arguments.next() {
        is_over |= argument == "--";
        let found = argument.to_str().filter(|_| !is_over).and_then(find);
        let Some((name, meaning, value)) = found else {
            let long = argument.to_str().filter(|_| !is_over).and_then(long);
            kept.push(long.map_or(argument, OsString::from));
            continue;
        };
        let next_is_value = |next: &OsString| !next.to_string_lossy().starts_with('-');
        let takes_value = !matches!(meaning, Switch(_)) && value.is_none();
        let value = match takes_value {
            true => {
                arguments.next_if(next_is_value).map(|next| next.to_string_lossy().into_owned())
            }
            false => value.map(str::to_owned),
        };
        match meaning {
            Switch(why) | Valued(why) => {
                notes.push(format!("--{name} changes nothing here: {why}"));
            }
            Instead(_) if COUNTS.contains(&name) && value.as_deref() == Some("1") => {
                notes.push(format!("--{name} 1 changes nothing here: {ONE_WORKER}"));
            }
            Instead(what) => {
                return Err(CliError::Usage(format!("--{name} is a flag of vLLM: {what}")));
            }
        }
    }
    Ok((kept, notes))
}

/// Returns this program's form of a flag to which vLLM gives another name.
fn long(argument: &str) -> Option<String> {
    let (short, name) = ALIASES.iter().find(|(short, _)| {
        argument.strip_prefix(short).is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
    })?;
    Some(format!("--{name}{}", &argument[short.len()..]))
}

/// Returns the flag's name, its meaning, and the value after `=`.
fn find(argument: &str) -> Option<(&'static str, Meaning, Option<&str>)> {
    let (flag, value) = match argument.split_once('=') {
        Some((flag, value)) => (flag, Some(value)),
        None => (argument, None),
    };
    let short = ALIASES.iter().find(|(short, _)| *short == flag).map(|(_, name)| *name);
    let name = short.or_else(|| flag.strip_prefix("--"))?.replace('_', "-");
    let (name, meaning) = FLAGS.iter().find(|(known, _)| *known == name)?;
    Some((name, *meaning, value))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn sorted(line: &str) -> Result<(String, usize), String> {
        let (kept, notes) = sort(line.split(' ').map(OsString::from)).map_err(|e| e.to_string())?;
        let kept: Vec<_> = kept.iter().map(|word| word.to_string_lossy()).collect();
        Ok((kept.join(" "), notes.len()))
    }

    #[test]
    fn flags_without_a_meaning_are_left_out() {
        let line = "serve m --trust-remote-code --port 1 --swap-space 4 --disable-log-stats \
                    --show-hidden-metrics-for-version=0.9";
        assert_eq!(sorted(line), Ok(("serve m --port 1".to_owned(), 4)));
        let line = "serve m --swap_space=4 -tp 1 --tensor-parallel-size=1 --seed 3";
        assert_eq!(sorted(line), Ok(("serve m --seed 3".to_owned(), 3)));
        let line = "bench startup -- --trust-remote-code";
        assert_eq!(sorted(line), Ok((line.to_owned(), 0)));
    }

    #[test]
    fn a_short_flag_of_two_letters_is_written_out() {
        let line = "serve m -dp 2 -dp=3 --data-parallel-size 4 -- -dp 5";
        let long = "serve m --data-parallel-size 2 --data-parallel-size=3 --data-parallel-size 4 \
                    -- -dp 5";
        assert_eq!(sorted(line), Ok((long.to_owned(), 0)));
    }

    #[test]
    fn other_flags_say_what_to_use() {
        let error = sorted("serve m --cpu-offload-gb 9").unwrap_err();
        assert!(error.contains("--quantization"), "{error}");
        assert!(sorted("serve m -tp 2").unwrap_err().contains("--device"));
        let error = sorted("serve m --collect-detailed-traces all").unwrap_err();
        assert!(error.contains("playhouse profile"), "{error}");
    }

    #[test]
    fn no_flag_of_this_program_is_among_them() {
        assert!(!FLAGS.is_empty());
        let command = super::super::Cli::command();
        let mut open = vec![&command];
        while let Some(command) = open.pop() {
            open.extend(command.get_subcommands());
            for flag in command.get_arguments().filter_map(clap::Arg::get_long) {
                assert!(FLAGS.iter().all(|(known, _)| *known != flag), "--{flag}");
            }
        }
    }
}
