//! The entries of earlier conversations: a file of the user, one line for each entry.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    path::PathBuf,
};

use crate::files;

/// Entries that later conversations show.
pub(super) const ENTRIES_MAX: usize = 1000;

/// The file with the history.
pub(super) struct History {
    path: PathBuf,
}

impl History {
    /// Returns the user's history: `playhouse/chat_history` in `$XDG_STATE_HOME`, which defaults to
    /// `~/.local/state`. `None` for users without a home.
    pub(super) fn of_user() -> Option<Self> {
        let folder = |name| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
        let state = folder("XDG_STATE_HOME").or_else(|| Some(folder("HOME")?.join(".local/state")));
        Some(Self { path: state?.join("playhouse/chat_history") })
    }

    /// Returns the entries so far, the oldest first. A file that cannot be read counts as empty.
    pub(super) fn entries(&self) -> Vec<String> {
        let text = files::read(&self.path).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let all: Vec<_> = text.lines().filter(|line| !line.is_empty()).map(unescape).collect();
        // This is rare, so that two conversations seldom do it at the same time.
        if all.len() > 2 * ENTRIES_MAX {
            let kept: String = all[all.len() - ENTRIES_MAX..].iter().map(|e| line(e)).collect();
            let _ = self.replace(&kept);
        }
        all.into_iter().rev().take(ENTRIES_MAX).rev().collect()
    }

    /// Adds an entry at the end.
    pub(super) fn add(&self, entry: &str) -> io::Result<()> {
        if let Some(folder) = self.path.parent() {
            fs::create_dir_all(folder)?;
        }
        let mut options = OpenOptions::new();
        options.append(true).create(true);
        for_user_alone(&mut options);
        // One write, so that entries of concurrent conversations do not mix.
        files::open_to_write(&self.path, &mut options)?.write_all(line(entry).as_bytes())
    }

    fn replace(&self, text: &str) -> io::Result<()> {
        let permissions = fs::metadata(&self.path)?.permissions();
        files::replace_with(&self.path, |file| {
            file.set_permissions(permissions)?;
            file.write_all(text.as_bytes())
        })
    }
}

/// Lets only the user read the file, because questions to a model are private.
fn for_user_alone(options: &mut OpenOptions) {
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(0o600);
    }
}

fn line(entry: &str) -> String {
    format!("{}\n", entry.replace('\\', "\\\\").replace('\n', "\\n"))
}

fn unescape(line: &str) -> String {
    let (mut entry, mut chars) = (String::new(), line.chars());
    while let Some(c) = chars.next() {
        match (c, c == '\\') {
            (_, true) => match chars.next() {
                Some('n') => entry.push('\n'),
                Some(other) => entry.push(other),
                None => entry.push('\\'),
            },
            (c, false) => entry.push(c),
        }
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_back_as_they_were() {
        let folder = tempfile::TempDir::new().unwrap();
        let history = History { path: folder.path().join("a/b/chat_history") };
        assert!(history.entries().is_empty());
        let entries = ["hello", "two\nlines \\", "C:\\new \\\\ x", "ünïcode"];
        for entry in entries {
            history.add(entry).unwrap();
        }
        assert_eq!(history.entries(), entries);
    }

    #[test]
    fn a_long_history_loses_its_beginning() {
        let folder = tempfile::TempDir::new().unwrap();
        let history = History { path: folder.path().join("chat_history") };
        let all: Vec<_> = (0..=2 * ENTRIES_MAX).map(|i| format!("entry {i}")).collect();
        fs::write(&history.path, all.iter().map(|entry| line(entry)).collect::<String>()).unwrap();
        let kept = &all[all.len() - ENTRIES_MAX..];
        assert_eq!(history.entries(), kept);
        let lines = fs::read_to_string(&history.path).unwrap().lines().count();
        assert_eq!(lines, ENTRIES_MAX, "the file is cut as well");
    }

    #[cfg(unix)]
    #[test]
    fn the_file_is_its_users_alone() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::TempDir::new().unwrap();
        let history = History { path: folder.path().join("chat_history") };
        history.add("secret").unwrap();
        let mode = fs::metadata(&history.path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
