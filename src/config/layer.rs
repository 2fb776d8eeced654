//! The entries of one source, uninterpreted: a file, the environment, or the command line.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use toml::{Value, de::DeTable};

use super::{
    Setting,
    error::{ConfigError, InvalidValue},
    key::{Key, closest},
    origin::Origin,
};
use crate::files;

/// One value from one source, not yet interpreted.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The setting.
    pub key: Key,
    /// As written. Text if it came from a flag or a variable.
    pub value: Value,
    /// Its source.
    pub origin: Origin,
}

impl Entry {
    /// Returns a value with which a command replaces a default.
    #[cfg(feature = "cli")]
    pub(crate) fn of_command(section: &str, name: &str, value: &str) -> Self {
        Self { key: Key::new(section, name), value: value.into(), origin: Origin::Default }
    }
}

/// Names the configuration file if there is no `--config`.
pub const CONFIG_VARIABLE: &str = "PLAYHOUSE_CONFIG";
/// Short for `PLAYHOUSE_LOG_LEVEL`.
pub const LOG_VARIABLE: &str = "PLAYHOUSE_LOG";
/// Read by the kernels: an instruction set to use in place of the best one.
const ISA_VARIABLE: &str = "PLAYHOUSE_CPU_ISA";
/// Marks a process that takes over the listening socket of another one.
pub(crate) const HANDOVER_VARIABLE: &str = "PLAYHOUSE_HANDOVER";
/// The prefix of variables that only this repository's tests read.
const TEST_PREFIX: &str = "PLAYHOUSE_TEST_";

/// Returns the entries of the configuration file at `path`.
///
/// # Errors
/// When it cannot be read, is not TOML, or has an unknown key.
pub fn from_file(path: &Path) -> Result<Vec<Entry>, ConfigError> {
    let read = files::read_to_string(path);
    let text = read.map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
    from_toml(&text, path)
}

/// Returns the entries of `text`, the content of `path`.
pub(super) fn from_toml(text: &str, path: &Path) -> Result<Vec<Entry>, ConfigError> {
    let line = |offset: usize| text[..offset].matches('\n').count() + 1;
    let syntax = |error: toml::de::Error| ConfigError::Syntax {
        path: path.to_owned(),
        line: line(error.span().map_or(0, |span| span.start)),
        message: error.message().to_owned(),
    };
    let spans = DeTable::parse(text).map_err(syntax)?;
    let values: toml::Table = toml::from_str(text).map_err(syntax)?;
    let known = Key::all();
    let mut entries = Vec::new();
    for (section, table) in spans.get_ref() {
        let name = section.get_ref().as_ref();
        let Some(table) = table.get_ref().as_table().filter(|_| is_section(name, &known)) else {
            return Err(unknown(path, line(section.span().start), name, &known));
        };
        for key in table.keys() {
            let line = line(key.span().start);
            let key = Key::new(name, key.get_ref());
            let value = values.get(name).and_then(|table| table.get(&key.name));
            let (Some(value), Some(setting)) = (value, Setting::find(name, &key.name)) else {
                return Err(unknown(path, line, &key.to_string(), &known));
            };
            let origin = Origin::File { path: path.to_owned(), line };
            add(&mut entries, Entry { key: setting.key(), value: value.clone(), origin })?;
        }
    }
    Ok(entries)
}

/// Adds an entry. Rejects a second value of a setting under another name, if it differs from the
/// first.
fn add(entries: &mut Vec<Entry>, entry: Entry) -> Result<(), ConfigError> {
    let before = entries.iter().find(|before| before.key == entry.key);
    if let Some(before) = before.filter(|before| before.value != entry.value) {
        let (first, second) = (before.origin.clone(), entry.origin);
        return Err(ConfigError::SetTwice { key: entry.key, first, second });
    }
    entries.push(entry);
    Ok(())
}

fn is_section(name: &str, known: &[Key]) -> bool {
    known.iter().any(|key| key.section == name)
}

/// Returns the error for an unknown key. Its suggestion may be a key of another section.
fn unknown(path: &Path, line: usize, given: &str, known: &[Key]) -> ConfigError {
    let name = given.rsplit('.').next().unwrap_or(given);
    let same_name = known.iter().find(|key| key.name == name).map(Key::to_string);
    let closest = same_name.or_else(|| closest(given, known.iter().map(Key::to_string)));
    ConfigError::UnknownKey { path: path.to_owned(), line, key: given.to_owned(), closest }
}

/// Returns the entries of the `PLAYHOUSE_…` variables among `variables`, and the file that
/// [`CONFIG_VARIABLE`] names.
///
/// # Errors
/// When a variable is unknown, or not UTF-8.
pub fn from_environment(
    variables: impl Iterator<Item = (OsString, OsString)>,
) -> Result<(Vec<Entry>, Option<PathBuf>), ConfigError> {
    let (mut entries, mut file) = (Vec::new(), None);
    for (name, value) in variables {
        let Some(name) = name.to_str().filter(|name| name.starts_with("PLAYHOUSE_")) else {
            continue;
        };
        if name == CONFIG_VARIABLE {
            file = Some(PathBuf::from(value));
            continue;
        }
        if [ISA_VARIABLE, HANDOVER_VARIABLE].contains(&name) || name.starts_with(TEST_PREFIX) {
            continue;
        }
        let wanted = if name == LOG_VARIABLE { "PLAYHOUSE_LOG_LEVEL" } else { name };
        let is_wanted = |setting: &&Setting| {
            let keys = [Some(setting.key()), setting.old_key()];
            keys.iter().flatten().any(|key| key.variable() == wanted)
        };
        let Some(key) = Setting::all().find(is_wanted).map(Setting::key) else {
            let closest = closest(name, Key::all().iter().map(Key::variable));
            return Err(ConfigError::UnknownVariable { name: name.to_owned(), closest });
        };
        let origin = Origin::Environment(name.to_owned());
        match value.into_string() {
            Ok(value) => add(&mut entries, Entry { key, value: Value::String(value), origin })?,
            Err(value) => {
                let value = value.to_string_lossy().into_owned();
                let reason = "expected UTF-8 text".to_owned();
                return Err(InvalidValue { key, value, origin, reason }.into());
            }
        }
    }
    Ok((entries, file))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> Result<Vec<Entry>, String> {
        from_toml(text, Path::new("p.toml")).map_err(|error| error.to_string())
    }

    #[test]
    fn a_file_gives_values_with_their_lines() {
        let entries = file("# comment\n[engine]\nseed = 3\n\n[server]\nport = 1\n").unwrap();
        let lines: Vec<_> =
            entries.iter().map(|e| (e.key.to_string(), e.origin.to_string())).collect();
        let expected = [("engine.seed", "p.toml:3"), ("server.port", "p.toml:6")];
        assert_eq!(lines, expected.map(|(key, origin)| (key.to_owned(), origin.to_owned())));
    }

    #[test]
    fn unknown_keys_are_refused_with_line_and_suggestion() {
        assert_eq!(
            file("[engine]\nseed = 1\nmax_num_seq = 4\n").unwrap_err(),
            "p.toml:3: unknown key engine.max_num_seq; did you mean engine.max_num_seqs?"
        );
        assert_eq!(
            file("max_num_seqs = 4\n").unwrap_err(),
            "p.toml:1: unknown key max_num_seqs; did you mean engine.max_num_seqs?"
        );
        assert_eq!(
            file("[server]\nmax_num_seqs = 4\n").unwrap_err(),
            "p.toml:2: unknown key server.max_num_seqs; did you mean engine.max_num_seqs?"
        );
        assert!(file("[gpu]\n").unwrap_err().contains("unknown key gpu; `playhouse config`"));
    }

    #[test]
    fn broken_toml_is_refused_with_its_line() {
        let message = file("[engine]\nseed = = 1\n").unwrap_err();
        assert!(message.starts_with("p.toml:2: not valid TOML: "), "{message}");
    }

    #[test]
    fn the_environment_sets_values_and_names_the_file() {
        let variables = [
            ("HOME", "/root"),
            ("PLAYHOUSE_MAX_NUM_SEQS", "7"),
            ("PLAYHOUSE_LOG", "debug"),
            ("PLAYHOUSE_CPU_ISA", "avx2"),
            ("PLAYHOUSE_TEST_PYTHON", "python3"),
            ("PLAYHOUSE_CONFIG", "/etc/p.toml"),
        ];
        let variables = variables.map(|(name, value)| (name.into(), value.into()));
        let (entries, file) = from_environment(variables.into_iter()).unwrap();
        assert_eq!(file.as_deref(), Some(Path::new("/etc/p.toml")));
        assert_eq!(entries[0].key, Key::new("engine", "max_num_seqs"));
        assert_eq!(entries[1].key, Key::new("log", "level"));
        assert_eq!(entries[1].origin.to_string(), "environment PLAYHOUSE_LOG");
    }

    #[test]
    fn names_of_earlier_versions_set_the_same() {
        let text = "[engine]\npriority_age_bound_s = 5\n[server]\nwrite_timeout = 7\n";
        let keys = |entries: Vec<Entry>| {
            entries.iter().map(|entry| entry.key.to_string()).collect::<Vec<_>>()
        };
        let from_file = keys(file(text).unwrap());
        assert_eq!(from_file, ["engine.priority_age_bound_secs", "server.write_timeout_secs"]);
        let variables = [("PLAYHOUSE_LOG_STATS_INTERVAL_S".into(), "7".into())];
        let (entries, _) = from_environment(variables.into_iter()).unwrap();
        assert_eq!(entries[0].origin.to_string(), "environment PLAYHOUSE_LOG_STATS_INTERVAL_S");
        assert_eq!(keys(entries), ["log.stats_interval_secs"]);
    }

    #[test]
    fn two_names_with_two_values_are_refused() {
        assert_eq!(
            file("[server]\nwrite_timeout = 7\nwrite_timeout_secs = 8\n").unwrap_err(),
            "server.write_timeout_secs is set twice: by p.toml:2 and by p.toml:3"
        );
        assert!(file("[server]\nwrite_timeout = 7\nwrite_timeout_secs = 7\n").is_ok());
        let variables = [
            ("PLAYHOUSE_LOG".into(), "debug".into()),
            ("PLAYHOUSE_LOG_LEVEL".into(), "info".into()),
        ];
        let error = from_environment(variables.into_iter()).unwrap_err();
        assert!(error.to_string().starts_with("log.level is set twice"), "{error}");
    }

    #[test]
    fn unknown_variables_are_refused() {
        let variables = [("PLAYHOUSE_PROT".into(), "7".into())];
        let error = from_environment(variables.into_iter()).unwrap_err();
        let expected = "unknown environment variable PLAYHOUSE_PROT; did you mean PLAYHOUSE_PORT?";
        assert_eq!(error.to_string(), expected);
    }
}
