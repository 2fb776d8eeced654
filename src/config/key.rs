//! The names of settings: `engine.max_num_seqs` in a file is `--max-num-seqs` as a flag and
//! `PLAYHOUSE_MAX_NUM_SEQS` in the environment.

use std::fmt;

use super::Setting;

/// A setting's place in the configuration file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The table: `engine`, `server`, `limits` or `log`.
    pub section: String,
    /// The key within it.
    pub name: String,
}

impl Key {
    /// Returns the key `section.name`.
    #[must_use]
    pub fn new(section: &str, name: &str) -> Self {
        Self { section: section.to_owned(), name: name.to_owned() }
    }

    /// Returns the name without a section, as flags and variables use it.
    fn flat(&self) -> String {
        match self.section.as_str() {
            "log" => format!("log_{}", self.name),
            _ => self.name.clone(),
        }
    }

    /// Returns the flag that sets it.
    #[must_use]
    pub fn flag(&self) -> String {
        format!("--{}", self.flat().replace('_', "-"))
    }

    /// Returns the environment variable that sets it.
    #[must_use]
    pub fn variable(&self) -> String {
        format!("PLAYHOUSE_{}", self.flat().to_uppercase())
    }

    /// Returns all keys, in the order of the file.
    #[must_use]
    pub fn all() -> Vec<Self> {
        Setting::all().map(Setting::key).collect()
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.section, self.name)
    }
}

/// Returns the candidate nearest to `given`, if one is near enough to be the intended name.
pub(super) fn closest(given: &str, candidates: impl Iterator<Item = String>) -> Option<String> {
    let scored = candidates.map(|candidate| {
        let distance = strsim::damerau_levenshtein(given, &candidate);
        (distance, candidate)
    });
    let (distance, candidate) = scored.min()?;
    (distance <= (given.len() / 3).max(2)).then_some(candidate)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn flags_and_variables_are_unambiguous() {
        let keys = Key::all();
        assert!(keys.len() > 30);
        let flags: BTreeSet<_> = keys.iter().map(Key::flag).collect();
        assert_eq!(flags.len(), keys.len());
        assert_eq!(Key::new("log", "level").variable(), "PLAYHOUSE_LOG_LEVEL");
        assert_eq!(Key::new("engine", "max_num_seqs").flag(), "--max-num-seqs");
    }

    #[test]
    fn the_closest_is_only_suggested_when_it_is_close() {
        let names = || ["max_num_seqs", "seed"].into_iter().map(str::to_owned);
        assert_eq!(closest("max_num_seq", names()).as_deref(), Some("max_num_seqs"));
        assert_eq!(closest("mx_nmu_seqs", names()).as_deref(), Some("max_num_seqs"));
        assert_eq!(closest("gpu_memory_utilization", names()), None);
    }
}
