//! One setting, with its text for files, variables, flags and documents.

use serde_json::Value as Json;
use toml::Value;

use super::{Config, engine::EngineConfig, limits::LimitSettings, log::LogSettings};
use super::{key::Key, server::ServerSettings};

/// A row of the tables of settings. `settings!` makes the rows.
#[derive(Debug)]
pub struct Setting {
    /// The table of the file: `engine`, `server`, `limits` or `log`.
    pub section: &'static str,
    /// The key in that table.
    pub name: &'static str,
    /// The lines of its description, for the file and the documents.
    pub meaning: &'static [&'static str],
    /// The heading of its flag.
    pub heading: &'static str,
    /// The spelling of its values.
    pub written: Written,
    /// The text of its flag.
    pub usage: Usage,
    /// Reads a value into a configuration.
    pub(super) set: fn(&mut Config, Value) -> Result<(), toml::de::Error>,
    /// Returns the value of a configuration.
    pub(super) get: fn(&Config) -> Json,
}

/// The spelling of a setting's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// True or false.
    Switch,
    /// Several texts.
    Texts,
    /// Several texts, which may hold commas. A flag takes several at once.
    Words,
    /// Several texts that are never shown.
    Secrets,
    /// A text that is never shown.
    Secret,
    /// A number of bytes.
    Bytes,
    /// Any other value.
    Plain,
}

/// The text of a flag, and the names of a setting.
#[derive(Debug, Clone, Copy)]
pub struct Usage {
    /// The placeholder of the value in the help.
    pub value_name: &'static str,
    /// The help, without the default.
    pub help: &'static str,
    /// The default in the help, if it differs from the default of the table. An empty text shows
    /// none.
    pub default: Option<&'static str>,
    /// A value for the file, in TOML. With it, the file shows the setting as a comment.
    pub example: Option<&'static str>,
    /// The words that the value may be. Shells complete them. A value may have other spellings,
    /// which only the setting's type knows.
    pub words: &'static [&'static str],
    /// The flag's short form.
    pub short: Option<char>,
    /// A name of earlier versions, which files, variables and flags may still use.
    pub old_name: Option<&'static str>,
    key: Option<&'static str>,
}

impl Usage {
    /// Returns the text of a flag whose value has this name.
    pub(super) const fn new(value_name: &'static str, help: &'static str) -> Self {
        let (default, example, short, old_name, key) = (None, None, None, None, None);
        Self { value_name, help, default, example, words: &[], short, old_name, key }
    }

    /// Returns the text of a flag that is given alone, or with true or false.
    pub(super) const fn switch(help: &'static str) -> Self {
        Self::new("BOOL", help)
    }

    /// Sets the default that the help shows.
    pub(super) const fn default(mut self, default: &'static str) -> Self {
        self.default = Some(default);
        self
    }

    /// Sets the value that the file shows as an example.
    pub(super) const fn example(mut self, toml: &'static str) -> Self {
        self.example = Some(toml);
        self
    }

    /// Sets the words that the value may be.
    pub(super) const fn words(mut self, words: &'static [&'static str]) -> Self {
        self.words = words;
        self
    }

    /// Sets the flag's short form.
    pub(super) const fn short(mut self, letter: char) -> Self {
        self.short = Some(letter);
        self
    }

    /// Sets the name of earlier versions.
    pub(super) const fn was(mut self, old_name: &'static str) -> Self {
        self.old_name = Some(old_name);
        self
    }

    /// Sets the key, which is vLLM's name, if it differs from the field's name.
    pub(super) const fn key(mut self, key: &'static str) -> Self {
        self.key = Some(key);
        self
    }

    /// Returns the key of the setting in this field.
    pub(super) const fn name(self, field: &'static str) -> &'static str {
        match self.key {
            Some(key) => key,
            None => field,
        }
    }
}

impl Setting {
    /// Returns all settings, in the order of the file.
    pub fn all() -> impl Iterator<Item = &'static Self> {
        let tables = [
            EngineConfig::SETTINGS,
            ServerSettings::SETTINGS,
            LimitSettings::SETTINGS,
            LogSettings::SETTINGS,
        ];
        tables.into_iter().flatten()
    }

    /// Returns the setting of this name in this section. The name may be that of an earlier
    /// version.
    #[must_use]
    pub fn find(section: &str, name: &str) -> Option<&'static Self> {
        let has_name = |setting: &Self| {
            setting.name == name || setting.usage.old_name.is_some_and(|old| old == name)
        };
        Self::all().find(|setting| setting.section == section && has_name(setting))
    }

    /// Returns its name, with the section.
    #[must_use]
    pub fn key(&self) -> Key {
        Key::new(self.section, self.name)
    }

    /// Returns its name in an earlier version, with the section.
    #[must_use]
    pub fn old_key(&self) -> Option<Key> {
        self.usage.old_name.map(|name| Key::new(self.section, name))
    }

    /// Returns whether its value must not be shown.
    #[must_use]
    pub fn is_secret(&self) -> bool {
        matches!(self.written, Written::Secrets | Written::Secret)
    }

    /// Returns the default as text, with a unit if it is in bytes. `None` if there is none.
    #[must_use]
    pub fn default_text(&self) -> Option<String> {
        match (self.get)(&Config::default()) {
            Json::Null => None,
            Json::String(text) => Some(text).filter(|text| !text.is_empty()),
            Json::Array(texts) => {
                let texts: Vec<_> = texts.iter().filter_map(Json::as_str).collect();
                Some(texts.join(",")).filter(|text| !text.is_empty())
            }
            Json::Number(number) if self.written == Written::Bytes => {
                Some(with_unit(number.as_u64()?))
            }
            Json::Number(number) => {
                let text = number.to_string();
                Some(text.strip_suffix(".0").map_or(text.clone(), str::to_owned))
            }
            other => Some(other.to_string()),
        }
    }

    /// Returns the default in TOML. `None` if the file shows an example.
    #[must_use]
    pub fn default_toml(&self) -> Option<String> {
        if self.usage.example.is_some() {
            return None;
        }
        match (self.get)(&Config::default()) {
            Json::Null => None,
            Json::Number(_) if self.written == Written::Bytes => {
                self.default_text().map(|text| format!("\"{text}\""))
            }
            // JSON's texts, numbers and lists of texts are also TOML.
            other => Some(other.to_string()),
        }
    }
}

/// Returns a number of bytes in the largest unit that leaves it whole.
fn with_unit(bytes: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let unit = units.into_iter().find(|(bits, _)| bytes > 0 && bytes.trailing_zeros() >= *bits);
    unit.map_or_else(|| bytes.to_string(), |(bits, name)| format!("{}{name}", bytes >> bits))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unambiguous() {
        let keys = Setting::all().flat_map(|setting| [Some(setting.key()), setting.old_key()]);
        let keys: Vec<_> = keys.flatten().collect();
        let flags: BTreeSet<_> = keys.iter().map(Key::flag).collect();
        assert_eq!(flags.len(), keys.len());
        assert!(keys.len() > 100);
    }

    #[test]
    fn a_setting_without_a_value_has_an_example() {
        for setting in Setting::all() {
            let shown = setting.default_toml().is_some() || setting.usage.example.is_some();
            assert!(shown && !setting.meaning.is_empty(), "{}", setting.key());
        }
    }

    /// Returns the error of a value.
    fn refused(setting: &Setting, value: &str) -> Option<String> {
        let set = (setting.set)(&mut Config::default(), value.into());
        set.err().map(|error| error.message().to_owned())
    }

    #[test]
    fn a_value_of_a_few_words_may_be_any_of_them() {
        let mut count = 0;
        for setting in Setting::all() {
            let (key, words) = (setting.key(), setting.usage.words);
            count += usize::from(!words.is_empty());
            for word in words {
                assert_eq!(refused(setting, word), None, "{key}: {word}");
            }
        }
        assert!(count > 10, "{count}");
    }

    /// An error that lists the accepted words has them all from the table, or from its type.
    #[test]
    fn a_list_of_words_in_an_error_is_the_tables() {
        for setting in Setting::all() {
            let Some(message) = refused(setting, "no such word") else { continue };
            let Some((_, listed)) = message.split_once("expected ") else { continue };
            let is_list = setting.written == Written::Plain && listed.contains(" or ");
            let listed: BTreeSet<&str> = listed
                .split([',', ' ', '(', ')', '`'])
                .filter(|word| !["", "or"].contains(word) && !word.ends_with(":N"))
                .collect();
            let words: BTreeSet<&str> = setting.usage.words.iter().copied().collect();
            let is_number = listed.contains("number") || listed.contains("integer");
            if is_list && !is_number {
                assert!(words.is_subset(&listed), "{}: {words:?} {message}", setting.key());
                assert!(!words.is_empty(), "{}: {message}", setting.key());
            }
        }
    }

    /// A duration's name ends in its unit, unless vLLM's name does not.
    #[test]
    fn durations_end_in_their_unit() {
        let of_vllm = ["timeout_keep_alive", "shutdown_timeout", "sse_keep_alive_interval"];
        for setting in Setting::all() {
            let is_duration = setting.usage.value_name == "SECONDS";
            let is_named = setting.name.ends_with("_secs") || of_vllm.contains(&setting.name);
            assert_eq!(is_duration, is_named, "{}", setting.key());
        }
    }

    #[test]
    fn bytes_are_shown_with_their_unit() {
        let shown = [0, 7, 1 << 16, 32 << 20, 3 << 30, 1536].map(with_unit);
        assert_eq!(shown, ["0", "7", "64KiB", "32MiB", "3GiB", "1536"]);
    }
}
