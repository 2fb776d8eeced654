//! Source files, and the names that their code uses.

use std::{fs, path::Path};

/// One file of the workspace.
pub(crate) struct Source {
    /// The path relative to the workspace's root, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
}

/// Returns all Rust files of the workspace.
pub(crate) fn all() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut sources = Vec::new();
    for folder in ["src", "actors", "kernels", "tests", "benches", "examples"] {
        collect(root, &root.join(folder), &mut sources);
    }
    sources
}

fn collect(root: &Path, folder: &Path, sources: &mut Vec<Source>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() && path.file_name().is_some_and(|name| name != "target") {
            collect(root, &path, sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let relative = path.strip_prefix(root).unwrap().to_string_lossy().replace('\\', "/");
            let text = fs::read_to_string(&path).unwrap();
            sources.push(Source { path: relative, text });
        }
    }
}

impl Source {
    /// Returns whether the file is part of `folder`. Every file is part of the folder "".
    pub(crate) fn is_in(&self, folder: &str) -> bool {
        let rest = self.path.strip_prefix(folder);
        rest.is_some_and(|rest| folder.is_empty() || rest.is_empty() || rest.starts_with('/'))
    }

    /// Returns whether the file is only compiled for tests.
    pub(crate) fn is_test(&self) -> bool {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        let folders = self.path.split('/').any(|part| part == "tests" || part == "benches");
        folders || name == "tests.rs" || name.ends_with("_tests.rs")
    }
}

/// Returns the names in code, each with its line. Comments, strings and test modules are left out.
/// Names are paths, with their `use` groups expanded (`use a::{b, c::d}` is `a::b`, `a::c::d`), and
/// single words.
pub(crate) fn names(text: &str) -> Vec<(usize, String)> {
    let code = code_of(text);
    let mut names = Vec::new();
    let (mut prefixes, mut path) = (Vec::<String>::new(), String::new());
    let mut line = 1;
    let mut in_use = false;
    let mut word = String::new();
    for c in code.chars().chain(['\n']) {
        if c.is_alphanumeric() || c == '_' {
            word.push(c);
            continue;
        }
        if !word.is_empty() {
            in_use |= word == "use" && path.is_empty();
            path.push_str(&word);
            word.clear();
        }
        match c {
            ':' => path.push(':'),
            '{' if in_use => prefixes.push(std::mem::take(&mut path)),
            _ => {
                if !path.is_empty() && path != "use" {
                    let full = format!("{}{path}", prefixes.concat());
                    names.push((line, full.trim_start_matches(':').to_owned()));
                }
                path.clear();
                match c {
                    '}' if in_use => drop(prefixes.pop()),
                    ';' => in_use = false,
                    '\n' => line += 1,
                    _ => {}
                }
            }
        }
        if !in_use {
            prefixes.clear();
        }
    }
    names
}

/// Returns `text` without comments and the content of strings, up to its test module. Lines keep
/// their numbers.
fn code_of(text: &str) -> String {
    let (mut code, mut in_text) = (String::new(), false);
    for line in text.lines() {
        if line == "mod tests {" {
            break;
        }
        let line = line.replace("'\"'", "' '");
        let mut chars = line.chars().peekable();
        while let Some(c) = chars.next() {
            match c {
                '\\' if in_text => drop(chars.next()),
                '"' => in_text = !in_text,
                '/' if !in_text && chars.peek() == Some(&'/') => break,
                _ if !in_text => code.push(c),
                _ => {}
            }
        }
        code.push('\n');
        // A string continues in the next line only after a backslash. Otherwise it is a raw string
        // with quotes in it, and ends in this line.
        in_text &= line.ends_with('\\');
    }
    code
}
