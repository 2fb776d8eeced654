//! `playhouse config`: what the settings come to, and where each comes from.

use std::fmt::Write;

use clap::Args;
use serde_json::{Value, json};

use super::{
    CliError,
    flags::{EngineFlags, LimitFlags, SeedFlag, ServerFlags, StatsFlag, entries},
    output::{self, Format},
};
use crate::config::{Key, Origin, layer::Entry, resolve::Resolved};

const EXAMPLES: &str = "\
Examples:
  playhouse config                                 All settings
  playhouse config --max-num-seqs 64               What a flag would change
  playhouse config --output json | jq .engine.dtype
  playhouse config > playhouse.toml                A file to start from";

/// Show the settings that apply, and where each value comes from.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ConfigArgs {
    /// text is TOML that can be used as a configuration file
    #[arg(long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    engine: EngineFlags,
    #[command(flatten)]
    seed: SeedFlag,
    #[command(flatten)]
    server: ServerFlags,
    #[command(flatten)]
    stats: StatsFlag,
    #[command(flatten)]
    limits: LimitFlags,
}

impl ConfigArgs {
    /// The settings given.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        let mut all = self.engine.entries();
        all.extend(entries("engine", &self.seed));
        all.extend(entries("server", &self.server));
        all.extend(entries("log", &self.stats));
        all.extend(entries("limits", &self.limits));
        all
    }
}

/// Prints the settings.
pub(crate) fn run(args: &ConfigArgs, resolved: &Resolved) -> Result<(), CliError> {
    let settings = resolved.settings();
    match args.output {
        Format::Text => output::show(&as_toml(&settings)),
        Format::Json => output::show_json(&as_json(&settings)),
    }
}

type Setting = (Key, Value, Origin);

/// TOML with the origins as comments. What is not set, and what is secret, is a comment as a whole.
fn as_toml(settings: &[Setting]) -> String {
    let mut toml = String::new();
    let mut section = "";
    for (key, value, origin) in settings {
        if key.section != section {
            let gap = if section.is_empty() { "" } else { "\n" };
            section = &key.section;
            // Writing to a string cannot fail.
            let _ = writeln!(toml, "{gap}[{section}]");
        }
        // JSON's texts, numbers and lists of texts are TOML's.
        let line = match value {
            Value::Null => format!("# {} is not set", key.name),
            Value::Array(items) if key.is_secret() && !items.is_empty() => {
                format!("# {} = {value}", key.name)
            }
            // TOML's integers end before these; as texts they are read as well.
            Value::Number(number) if number.is_u64() && !number.is_i64() => {
                format!("{} = \"{value}\"", key.name)
            }
            _ => format!("{} = {value}", key.name),
        };
        let _ = writeln!(toml, "{line:<48} # {origin}");
    }
    toml
}

fn as_json(settings: &[Setting]) -> Value {
    let mut all = json!({});
    for (key, value, origin) in settings {
        let entry = json!({ "value": value, "origin": origin.to_string() });
        all[&key.section][&key.name] = entry;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn the_text_is_a_file_that_means_the_same() {
        let mut entries = entries("engine", &SeedFlag { seed: Some(u64::MAX.to_string()) });
        let flags = EngineFlags { max_model_len: Some("1k".to_owned()), ..Default::default() };
        entries.extend(flags.entries());
        let resolved = Resolved::new(entries).unwrap();
        let text = as_toml(&resolved.settings());
        assert_eq!(toml::from_str::<Config>(&text).unwrap(), resolved.config);
        let line = text.lines().find(|line| line.starts_with("max_model_len")).unwrap();
        assert!(
            line.starts_with("max_model_len = 1000") && line.ends_with("# flag --max-model-len")
        );
    }

    #[test]
    fn json_tells_value_and_origin() {
        let resolved = Resolved::new([]).unwrap();
        let json = as_json(&resolved.settings());
        let expected = json!({ "value": 256, "origin": "default" });
        assert_eq!(json["engine"]["max_num_seqs"], expected);
    }
}
