//! `playhouse config`: the resulting settings, and the source of each.

use std::fmt::Write;

use clap::Args;
use serde_json::{Value, json};

use super::{
    CliError,
    flags::AllFlags,
    output::{self, Format},
};
use crate::config::{Origin, Setting, layer::Entry, resolve::Resolved};

const EXAMPLES: &str = "\
Examples:
  playhouse config                                 All settings
  playhouse config --max-num-seqs 64               What a flag would change
  playhouse config --output json | jq .engine.dtype
  playhouse config > playhouse.toml                A file to start from";

/// Show the settings that apply, and the source of each value.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct ConfigArgs {
    /// text is TOML that can be used as a configuration file
    #[arg(long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    settings: AllFlags,
}

impl ConfigArgs {
    /// Returns the settings given.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        self.settings.entries()
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

type Shown = (&'static Setting, Value, Origin);

/// Returns TOML with the sources as comments. A setting without a value, or with a secret one, is a
/// comment as a whole.
fn as_toml(settings: &[Shown]) -> String {
    let mut toml = String::new();
    let mut section = "";
    for (setting, value, origin) in settings {
        let name = setting.name;
        if setting.section != section {
            let gap = if section.is_empty() { "" } else { "\n" };
            section = setting.section;
            // Writing to a string cannot fail.
            let _ = writeln!(toml, "{gap}[{section}]");
        }
        // JSON's texts, numbers and lists of texts are also TOML.
        let line = match value {
            Value::Null => format!("# {name} is not set"),
            Value::Array(items) if setting.is_secret() && !items.is_empty() => {
                format!("# {name} = {value}")
            }
            Value::String(_) if setting.is_secret() => format!("# {name} = {value}"),
            // TOML's integers end at 2⁶³ − 1. Larger ones are written as texts, which the reader
            // accepts too.
            Value::Number(number) if number.is_u64() && !number.is_i64() => {
                format!("{name} = \"{value}\"")
            }
            _ => format!("{name} = {value}"),
        };
        let _ = writeln!(toml, "{line:<48} # {origin}");
    }
    toml
}

fn as_json(settings: &[Shown]) -> Value {
    let mut all = json!({});
    for (setting, value, origin) in settings {
        let entry = json!({ "value": value, "origin": origin.to_string() });
        all[setting.section][setting.name] = entry;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Key, layer};

    #[test]
    fn the_text_is_a_file_of_the_same_settings() {
        let flag = |name, value: &str| {
            let key = Key::new("engine", name);
            let origin = Origin::Flag(key.flag());
            Entry { key, value: value.into(), origin }
        };
        let entries = [flag("seed", &u64::MAX.to_string()), flag("max_model_len", "1k")];
        let resolved = Resolved::new(entries).unwrap();
        let text = as_toml(&resolved.settings());
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &text).unwrap();
        let read = Resolved::new(layer::from_file(file.path()).unwrap()).unwrap();
        assert_eq!(read.config, resolved.config);
        let line = text.lines().find(|line| line.starts_with("max_model_len")).unwrap();
        assert!(
            line.starts_with("max_model_len = 1000") && line.ends_with("# flag --max-model-len")
        );
    }

    #[test]
    fn json_shows_value_and_origin() {
        let resolved = Resolved::new([]).unwrap();
        let json = as_json(&resolved.settings());
        let expected = json!({ "value": 256, "origin": "default" });
        assert_eq!(json["engine"]["max_num_seqs"], expected);
    }
}
