//! The name of a model on a hub: `org/name`, `org/name@revision`, `org/name:file.gguf`.

use std::{fmt, path::Path};

/// Longest part of a name. Hugging Face's limit is 96.
const PART_LEN_MAX: usize = 96;
/// Ends of names that are meant as files.
const FILE_ENDS: &[&str] = &[".gguf", ".json", ".safetensors", ".bin", ".git"];

/// A model on a hub, with the revision and the file that the name gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ModelName {
    /// `org/name`.
    pub(crate) repo: String,
    /// A branch, a tag or a commit.
    pub(crate) revision: Option<String>,
    /// A GGUF file, or the end of its name, for example `Q4_K_M`.
    pub(crate) file: Option<String>,
}

impl ModelName {
    /// Returns the name in `text`. `None` if it has not the form of a name.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (rest, file) = match text.split_once(':') {
            Some((rest, file)) => (rest, Some(file)),
            None => (text, None),
        };
        let (repo, revision) = match rest.split_once('@') {
            Some((repo, revision)) => (repo, Some(revision)),
            None => (rest, None),
        };
        let (org, name) = repo.split_once('/')?;
        let is_meant_as_file = FILE_ENDS.iter().any(|end| name.to_lowercase().ends_with(end));
        let is_name = is_part(org) && is_part(name) && !is_meant_as_file;
        let is_good = |part: Option<&str>| part.is_none_or(is_path);
        (is_name && is_good(revision) && is_good(file)).then(|| Self {
            repo: repo.to_owned(),
            revision: revision.map(str::to_owned),
            file: file.map(str::to_owned),
        })
    }

    /// Returns the name in `path`.
    pub(crate) fn of_path(path: &Path) -> Option<Self> {
        Self::parse(path.to_str()?)
    }
}

impl fmt::Display for ModelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.repo)?;
        self.revision.iter().try_for_each(|revision| write!(f, "@{revision}"))?;
        self.file.iter().try_for_each(|file| write!(f, ":{file}"))
    }
}

/// Returns whether `part` may be the organisation or the name of a repository.
fn is_part(part: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let is_end = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_');
    part.len() <= PART_LEN_MAX
        && is_end(part.chars().next())
        && is_end(part.chars().next_back())
        && part.chars().all(is_inner)
        && !part.contains("--")
        && !part.contains("..")
}

/// Returns whether `path` names a file or a revision within a repository: a relative path of plain
/// characters that leads to no parent folder.
pub(super) fn is_path(path: &str) -> bool {
    let is_plain = |c: char| !c.is_control() && !matches!(c, '\\' | ':' | '?' | '#' | '%');
    let is_step = |step: &str| !step.is_empty() && step != "." && step != "..";
    path.chars().all(is_plain) && path.split('/').all(is_step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_a_repository_a_revision_and_a_file() {
        let parts = |text| {
            let name = ModelName::parse(text).unwrap();
            assert_eq!(name.to_string(), text);
            (name.repo, name.revision, name.file)
        };
        let some = |text: &str| Some(text.to_owned());
        let qwen = "Qwen/Qwen3-0.6B".to_owned();
        assert_eq!(parts("Qwen/Qwen3-0.6B"), (qwen.clone(), None, None));
        assert_eq!(parts("Qwen/Qwen3-0.6B@refs/pr/1"), (qwen.clone(), some("refs/pr/1"), None));
        assert_eq!(
            parts("Qwen/Qwen3-0.6B@main:sub/q8_0.gguf"),
            (qwen.clone(), some("main"), some("sub/q8_0.gguf"))
        );
        assert_eq!(parts("Qwen/Qwen3-0.6B:Q4_K_M"), (qwen, None, some("Q4_K_M")));
    }

    #[test]
    fn paths_are_no_names() {
        for path in [
            "",
            "gpt2",
            "/org/name",
            "./org/name",
            "../name",
            "org/name/",
            "a/b/c",
            "no such/folder",
            "models/file.gguf",
            "org/na--me",
            "org/..",
            "C:/models",
            "org/name:",
            "org/name@",
            "org/name:../../etc/passwd",
            "org/name@a/../b",
            "builtin:demo-model",
        ] {
            assert_eq!(ModelName::parse(path), None, "{path}");
        }
    }
}
