//! Flags, exactly as typed. A flag's field has the name of the setting that it overrides, and its
//! value stays text: [`crate::config`] says what it means, and refuses it with the flag's name.

mod engine;
mod sampling;
mod server;

pub(crate) use engine::EngineFlags;
pub(crate) use sampling::SamplingFlags;
pub(crate) use server::{LimitFlags, LogFlags, SeedFlag, ServerFlags, StatsFlag};

use serde::Serialize;
use serde_json::Value as Typed;

use crate::config::{Key, Origin, layer::Entry};

/// The settings that `flags` give to `section`.
pub(crate) fn entries(section: &str, flags: &impl Serialize) -> Vec<Entry> {
    let typed = serde_json::to_value(flags).unwrap_or_default();
    let fields = typed.as_object().into_iter().flatten();
    let given = fields.filter_map(|(name, value)| {
        let value = match value {
            Typed::String(text) => toml::Value::String(text.clone()),
            Typed::Array(texts) if !texts.is_empty() => {
                let texts = texts.iter().filter_map(Typed::as_str);
                toml::Value::Array(texts.map(toml::Value::from).collect())
            }
            _ => return None,
        };
        let key = Key::new(section, name);
        let origin = Origin::Flag(key.flag());
        Some(Entry { key, value, origin })
    });
    given.collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::{Args, Command};

    use super::*;

    /// The long flags that a group adds to a command.
    fn flags<G: Args>() -> BTreeSet<String> {
        let command = G::augment_args(Command::new("test"));
        let long = command.get_arguments().filter_map(clap::Arg::get_long);
        long.map(|long| format!("--{long}")).collect()
    }

    #[test]
    fn every_setting_has_a_flag_and_every_flag_a_setting() {
        let keys: BTreeSet<_> = Key::all().iter().map(Key::flag).collect();
        let groups = [
            flags::<EngineFlags>(),
            flags::<SeedFlag>(),
            flags::<ServerFlags>(),
            flags::<StatsFlag>(),
            flags::<LimitFlags>(),
            flags::<LogFlags>(),
        ];
        let all = groups.into_iter().flatten();
        let all: BTreeSet<_> = all.filter(|flag| !flag.starts_with("--no-")).collect();
        assert_eq!(all, keys);
    }

    #[test]
    fn what_is_typed_becomes_entries() {
        let flags = EngineFlags {
            max_num_seqs: Some("8".into()),
            served_model_name: vec!["a".into(), "b".into()],
            no_enable_prefix_caching: true,
            ..EngineFlags::default()
        };
        let entries: Vec<_> = flags.entries().into_iter().map(|e| (e.key.name, e.value)).collect();
        let names = toml::Value::Array(vec!["a".into(), "b".into()]);
        let expected = [
            ("served_model_name", names),
            ("max_num_seqs", "8".into()),
            ("enable_prefix_caching", "false".into()),
        ];
        assert_eq!(entries, expected.map(|(name, value)| (name.to_owned(), value)));
    }

    #[test]
    fn flags_of_the_log_name_its_settings() {
        let log = LogFlags { log_level: Some("debug".into()) }.entries();
        let stats = StatsFlag { log_stats_interval_s: Some("0".into()) };
        let all = [log, entries("log", &stats)].concat();
        let keys: Vec<_> = all.iter().map(|entry| entry.key.to_string()).collect();
        assert_eq!(keys, ["log.level", "log.stats_interval_s"]);
    }
}
