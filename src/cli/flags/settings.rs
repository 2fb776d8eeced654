//! Flags of settings, made from the tables of [`crate::config`]. A value stays text.
//! [`crate::config`] interprets it, and rejects it with the flag's name.

use std::{marker::PhantomData, sync::LazyLock};

use clap::{
    Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches, builder::ValueRange,
    parser::ValueSource,
};
use toml::Value;

use super::words::{Words, words_of};
use crate::config::{Origin, Setting, Written, layer::Entry};

/// Flags of every command that loads a model.
pub(crate) type EngineFlags = SettingFlags<OfModel>;
/// Flags of commands that only fetch models or list them.
pub(crate) type HubFlags = SettingFlags<OfHub>;
/// Flags of every command that logs.
pub(crate) type LogFlags = SettingFlags<OfLog>;
/// Flags of all other settings, which commands that run a server have as well.
pub(crate) type ServerFlags = SettingFlags<OfServer>;

/// The settings of a group of flags.
pub(crate) trait Group: 'static {
    /// Returns whether a setting belongs to the group.
    fn has(setting: &Setting) -> bool;
}

/// The settings of the engine, without its seed: in most commands `--seed` is a request's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OfModel;

/// The settings of models by name, for commands that load none.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OfHub;

/// The level of the log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OfLog;

/// All other settings.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OfServer;

impl Group for OfModel {
    fn has(setting: &Setting) -> bool {
        setting.section == "engine" && setting.name != "seed"
    }
}

impl Group for OfHub {
    fn has(setting: &Setting) -> bool {
        let names = ["revision", "download_dir", "hf_token", "offline"];
        setting.section == "engine" && names.contains(&setting.name)
    }
}

impl Group for OfLog {
    fn has(setting: &Setting) -> bool {
        (setting.section, setting.name) == ("log", "level")
    }
}

impl Group for OfServer {
    fn has(setting: &Setting) -> bool {
        !OfModel::has(setting) && !OfLog::has(setting)
    }
}

/// The settings given by the flags of a group.
#[derive(Debug, Clone)]
pub(crate) struct SettingFlags<G> {
    given: Vec<Entry>,
    group: PhantomData<G>,
}

impl<G> SettingFlags<G> {
    /// Returns the settings given.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        self.given.clone()
    }
}

impl<G> Default for SettingFlags<G> {
    fn default() -> Self {
        Self { given: Vec::new(), group: PhantomData }
    }
}

/// The settings whose flags `-h` shows. `--help` shows all.
const IN_SHORT_HELP: [&str; 18] = [
    "model",
    "served_model_name",
    "device",
    "dtype",
    "quantization",
    "max_model_len",
    "max_num_seqs",
    "kv_cache_memory_bytes",
    "chat_template",
    "enable_lora",
    "speculative_config",
    "allow_chaos",
    "host",
    "port",
    "api_key",
    "tool_call_parser",
    "reasoning_parser",
    "level",
];

/// A setting's flag for clap.
struct Flag {
    setting: &'static Setting,
    /// `max-num-seqs`
    long: String,
    /// `no-enable-prefix-caching`
    no_long: String,
    /// The flag of an earlier version.
    old_long: Option<String>,
    /// The words that shells complete.
    words: Vec<String>,
    help: String,
}

static FLAGS: LazyLock<Vec<Flag>> = LazyLock::new(|| Setting::all().map(Flag::new).collect());

impl Flag {
    fn new(setting: &'static Setting) -> Self {
        let long = |flag: String| flag.trim_start_matches('-').to_owned();
        let default = match setting.usage.default {
            Some(default) => Some(default.to_owned()),
            None => setting.default_text(),
        };
        let help = setting.usage.help.to_owned();
        let long_name = long(setting.key().flag());
        Self {
            setting,
            no_long: format!("no-{long_name}"),
            long: long_name,
            words: words_of(setting),
            old_long: setting.old_key().map(|key| long(key.flag())),
            help: match default.filter(|default| !default.is_empty()) {
                Some(default) => format!("{help} [default: {default}]"),
                None => help,
            },
        }
    }

    fn is_switch(&self) -> bool {
        self.setting.written == Written::Switch
    }

    fn args(&'static self) -> impl Iterator<Item = Arg> {
        let usage = &self.setting.usage;
        let mut arg = Arg::new(self.long.as_str())
            .long(self.long.as_str())
            .value_name(usage.value_name)
            .help(self.help.as_str())
            .value_parser(Words::new(&self.words))
            // The help names them in its own words.
            .hide_possible_values(true)
            .global(OfLog::has(self.setting))
            .hide_short_help(!IN_SHORT_HELP.contains(&self.setting.name))
            .action(ArgAction::Set);
        if let Some(old_long) = &self.old_long {
            arg = arg.alias(old_long.as_str());
        }
        if let Some(letter) = usage.short {
            arg = arg.short(letter);
        }
        arg = match self.setting.written {
            Written::Switch => arg
                .num_args(ValueRange::from(0..=1))
                .require_equals(true)
                .default_missing_value("true"),
            Written::Texts => arg.action(ArgAction::Append).value_delimiter(','),
            Written::Words => arg.action(ArgAction::Append).num_args(1..),
            Written::Secrets => arg.action(ArgAction::Append),
            Written::Bytes | Written::Secret | Written::Plain => arg,
        };
        let opposite = self.is_switch().then(|| {
            Arg::new(self.no_long.as_str())
                .long(self.no_long.as_str())
                .help("The opposite")
                .hide_short_help(true)
                .action(ArgAction::SetTrue)
                .conflicts_with(self.long.as_str())
        });
        let heading = Some(self.setting.heading).filter(|heading| !heading.is_empty());
        [Some(arg), opposite].into_iter().flatten().map(move |arg| match heading {
            Some(heading) => arg.help_heading(heading),
            None => arg,
        })
    }

    /// Returns the typed value, if there is one.
    fn entry(&self, matches: &ArgMatches) -> Option<Entry> {
        let key = self.setting.key();
        if self.is_switch() && matches.get_flag(&self.no_long) {
            let origin = Origin::Flag(format!("--{}", self.no_long));
            return Some(Entry { key, value: "false".into(), origin });
        }
        if matches.value_source(&self.long) != Some(ValueSource::CommandLine) {
            return None;
        }
        let mut texts = matches.get_many::<String>(&self.long)?.cloned().map(Value::String);
        let value = match self.setting.written {
            Written::Texts | Written::Words | Written::Secrets => Value::Array(texts.collect()),
            Written::Switch | Written::Bytes | Written::Secret | Written::Plain => texts.next()?,
        };
        let origin = Origin::Flag(key.flag());
        Some(Entry { key, value, origin })
    }
}

fn flags<G: Group>() -> impl Iterator<Item = &'static Flag> {
    FLAGS.iter().filter(|flag| G::has(flag.setting))
}

impl<G: Group> Args for SettingFlags<G> {
    fn augment_args(command: Command) -> Command {
        command.args(flags::<G>().flat_map(Flag::args))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<G: Group> FromArgMatches for SettingFlags<G> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let given = flags::<G>().filter_map(|flag| flag.entry(matches)).collect();
        Ok(Self { given, group: PhantomData })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::config::Key;

    /// Returns the long flags that a group adds to a command.
    fn long_flags<G: Args>() -> BTreeSet<String> {
        let command = G::augment_args(Command::new("test"));
        let long = command.get_arguments().filter_map(Arg::get_long);
        long.map(|long| format!("--{long}")).collect()
    }

    fn parse<G: Group>(typed: &str) -> Vec<Entry> {
        let command = SettingFlags::<G>::augment_args(Command::new("test").no_binary_name(true));
        let matches = command.try_get_matches_from(typed.split_whitespace()).unwrap();
        SettingFlags::<G>::from_arg_matches(&matches).unwrap().entries()
    }

    #[test]
    fn every_setting_has_a_flag_and_every_flag_a_setting() {
        let keys: BTreeSet<_> = Key::all().iter().map(Key::flag).collect();
        let groups =
            [long_flags::<EngineFlags>(), long_flags::<ServerFlags>(), long_flags::<LogFlags>()];
        let all = groups.into_iter().flatten();
        let all: BTreeSet<_> = all.filter(|flag| !flag.starts_with("--no-")).collect();
        assert_eq!(all, keys);
    }

    #[test]
    fn typed_lines_become_entries() {
        let typed = "--max-num-seqs 8 --served-model-name a,b --served-model-name c \
                     --no-enable-prefix-caching --deterministic --pin-threads=false -m x";
        let entries = parse::<OfModel>(typed);
        let shown: Vec<_> =
            entries.iter().map(|e| format!("{} = {} {}", e.key, e.value, e.origin)).collect();
        assert_eq!(
            shown,
            [
                "engine.model = \"x\" flag --model",
                "engine.served_model_name = [\"a\", \"b\", \"c\"] flag --served-model-name",
                "engine.pin_threads = \"false\" flag --pin-threads",
                "engine.deterministic = \"true\" flag --deterministic",
                "engine.max_num_seqs = \"8\" flag --max-num-seqs",
                "engine.enable_prefix_caching = \"false\" flag --no-enable-prefix-caching",
            ]
        );
        assert_eq!(parse::<OfModel>(""), []);
    }

    #[test]
    fn keys_are_not_split() {
        let entries = parse::<OfServer>("--api-key a,b --api-key c");
        assert_eq!(entries[0].value, Value::Array(vec!["a,b".into(), "c".into()]));
    }

    #[test]
    fn flags_of_the_log_name_its_settings() {
        let log = parse::<OfLog>("--log-level debug");
        let stats = parse::<OfServer>("--log-stats-interval-secs 0");
        let keys: Vec<_> = [log, stats].concat().iter().map(|e| e.key.to_string()).collect();
        assert_eq!(keys, ["log.level", "log.stats_interval_secs"]);
    }

    #[test]
    fn flags_of_earlier_versions_set_the_same() {
        let entries = parse::<OfServer>("--write-timeout 7 --log-stats-interval-s 1");
        let keys: Vec<_> = entries.iter().map(|entry| entry.key.to_string()).collect();
        assert_eq!(keys, ["server.write_timeout_secs", "log.stats_interval_secs"]);
        let of_vllm = parse::<OfModel>(r#"--override-pooler-config {"pooling_type":"CLS"}"#);
        assert_eq!(of_vllm[0].key.to_string(), "engine.pooler_config");
    }
}
