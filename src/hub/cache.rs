//! Hugging Face's cache: `models--org--name/{refs,snapshots,blobs}`. Other programs share it.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::{
    files::{self, Lacking, Part, Want},
    name::is_path,
};

/// Deepest folder of a repository that is looked at.
const DEPTH_MAX: usize = 4;
/// The beginning of a model's folder.
const PREFIX: &str = "models--";

/// The folder of a cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cache {
    pub(super) root: PathBuf,
}

/// A model in the cache.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub(crate) struct CachedModel {
    /// `org/name`, or for a GGUF file `org/name:file.gguf`.
    pub(crate) name: String,
    /// The commit.
    pub(crate) revision: String,
    /// The branches and tags that mean this commit.
    pub(crate) refs: Vec<String>,
    /// Bytes of its files.
    pub(crate) bytes: u64,
    /// The folder, or the GGUF file.
    pub(crate) path: PathBuf,
}

impl Cache {
    /// Returns the folder of a repository.
    pub(super) fn repo(&self, repo: &str) -> PathBuf {
        self.root.join(format!("{PREFIX}{}", repo.replace('/', "--")))
    }

    /// Returns the folder with the files of a commit.
    pub(super) fn snapshot(&self, repo: &str, commit: &str) -> PathBuf {
        self.repo(repo).join("snapshots").join(commit)
    }

    /// Returns the folder with the files of a branch, a tag or a commit, if there is one.
    pub(super) fn find(&self, repo: &str, revision: &str) -> Option<PathBuf> {
        let folder = self.repo(repo);
        let commit = crate::files::read_to_string(&folder.join("refs").join(revision)).ok();
        let commit = commit.as_deref().map_or(revision, str::trim);
        let snapshot = self.snapshot(repo, commit);
        (is_path(commit) && snapshot.is_dir()).then_some(snapshot)
    }

    /// Returns all models that can be used without a network, in the order of their names.
    ///
    /// # Errors
    /// The system's errors. A cache that does not exist has no models.
    pub(super) fn models(&self) -> io::Result<Vec<CachedModel>> {
        let mut models = Vec::new();
        let folders = match names(&self.root) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(models),
            folders => folders?,
        };
        for folder in folders {
            let name = folder.strip_prefix(PREFIX).and_then(|name| name.split_once("--"));
            if let Some((org, name)) = name {
                self.add_models(&format!("{org}/{name}"), &mut models);
            }
        }
        models.sort_by(|a, b| (&a.name, &a.revision).cmp(&(&b.name, &b.revision)));
        Ok(models)
    }

    fn add_models(&self, repo: &str, models: &mut Vec<CachedModel>) {
        let refs = self.refs(repo);
        let snapshots = self.repo(repo).join("snapshots");
        for revision in names(&snapshots).unwrap_or_default() {
            let path = snapshots.join(&revision);
            let listing = listing(&path);
            let is_of = |(_, commit): &&(String, String)| *commit == revision;
            let refs: Vec<_> = refs.iter().filter(is_of).map(|(name, _)| name.clone()).collect();
            let model = |name: String, path: PathBuf, files: &[String], root: &Path| {
                let size =
                    |file: &String| fs::metadata(root.join(file)).map_or(0, |file| file.len());
                let bytes = files.iter().map(size).sum();
                let (revision, refs) = (revision.clone(), refs.clone());
                CachedModel { name, revision, refs, bytes, path }
            };
            let any = Want::Model { weights: true, tokenizer: false };
            if complete(&path, &any).is_ok() {
                models.push(model(repo.to_owned(), path.clone(), &listing, &path));
                continue;
            }
            for file in listing.iter().filter(|file| file.to_lowercase().ends_with(".gguf")) {
                // A file in parts is listed by the first one.
                if Part::of(file).is_some_and(|part| part.number != 1) {
                    continue;
                }
                if let Ok(parts) = files::parts(&listing, file) {
                    models.push(model(format!("{repo}:{file}"), path.join(file), &parts, &path));
                }
            }
        }
    }

    /// Returns the branches and tags of a repository with their commits.
    fn refs(&self, repo: &str) -> Vec<(String, String)> {
        let folder = self.repo(repo).join("refs");
        let commit = |name: String| {
            let commit = crate::files::read_to_string(&folder.join(&name)).ok()?;
            Some((name, commit.trim().to_owned()))
        };
        listing(&folder).into_iter().filter_map(commit).collect()
    }
}

/// Returns the name `org/name` of the repository with the snapshot in `folder`, if that is in a
/// cache.
pub(super) fn repo_of_snapshot(folder: &Path) -> Option<String> {
    let snapshots = folder.parent()?;
    let repo = snapshots.parent()?.file_name()?.to_str()?;
    let (org, name) = repo.strip_prefix(PREFIX)?.split_once("--")?;
    (snapshots.file_name()?.to_str()? == "snapshots").then(|| format!("{org}/{name}"))
}

/// Returns what the engine loads of the snapshot in `folder`: the folder, or a GGUF file in it.
///
/// # Errors
/// [`Lacking`] if files are absent.
pub(super) fn complete(folder: &Path, want: &Want) -> Result<PathBuf, Lacking> {
    let read = |name: &str| crate::files::read(&folder.join(name)).ok();
    let path = files::complete(&listing(folder), want, read)?;
    Ok(match path.is_empty() {
        true => folder.to_owned(),
        false => folder.join(path),
    })
}

/// Returns the files under `folder`, with `/` between the parts of their paths. A link to nothing
/// is no file.
pub(super) fn listing(folder: &Path) -> Vec<String> {
    let mut files = Vec::new();
    list(folder, "", DEPTH_MAX, &mut files);
    files.sort();
    files
}

fn list(folder: &Path, prefix: &str, depth: usize, files: &mut Vec<String>) {
    for name in names(folder).unwrap_or_default() {
        let path = folder.join(&name);
        // Follows links: a snapshot consists of them.
        let Ok(kind) = fs::metadata(&path) else { continue };
        if kind.is_file() {
            files.push(format!("{prefix}{name}"));
        } else if kind.is_dir() && depth > 0 {
            list(&path, &format!("{prefix}{name}/"), depth - 1, files);
        }
    }
}

/// Returns the names in a folder. Names that are not UTF-8 are left out.
fn names(folder: &Path) -> io::Result<Vec<String>> {
    let name = |entry: io::Result<fs::DirEntry>| entry.ok()?.file_name().into_string().ok();
    Ok(fs::read_dir(folder)?.filter_map(name).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, path: &str, content: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    #[test]
    fn a_snapshot_has_the_name_of_its_repository() {
        let (folder, cache) = cache();
        let name = |path: &Path| repo_of_snapshot(path);
        assert_eq!(name(&cache.snapshot("org/who--le", "abc")).as_deref(), Some("org/who--le"));
        assert_eq!(name(folder.path()), None);
        assert_eq!(name(&cache.repo("org/whole").join("refs/main")), None);
        assert_eq!(name(Path::new("snapshots/abc")), None);
    }

    /// Returns a cache with a complete model, half of one, and a GGUF file.
    fn cache() -> (tempfile::TempDir, Cache) {
        let folder = tempfile::TempDir::new().unwrap();
        let root = folder.path().to_owned();
        for (path, content) in [
            ("models--org--whole/refs/main", "abc\n"),
            ("models--org--whole/refs/pr/1", "abc"),
            ("models--org--whole/snapshots/abc/config.json", "{}"),
            ("models--org--whole/snapshots/abc/tokenizer.json", "{}"),
            ("models--org--whole/snapshots/abc/model.safetensors", "1234"),
            ("models--org--half/refs/main", "abc"),
            ("models--org--half/snapshots/abc/config.json", "{}"),
            ("models--org--gguf/snapshots/def/sub/m-Q8_0.gguf", "GGUF"),
            ("datasets--org--data/snapshots/abc/config.json", "{}"),
            ("version.txt", "1"),
        ] {
            write(&root, path, content);
        }
        (folder, Cache { root })
    }

    #[test]
    fn a_model_is_found_by_branch_tag_and_commit() {
        let (_folder, cache) = cache();
        let expected = cache.root.join("models--org--whole/snapshots/abc");
        for revision in ["main", "pr/1", "abc"] {
            assert_eq!(cache.find("org/whole", revision).as_ref(), Some(&expected), "{revision}");
        }
        assert_eq!(cache.find("org/whole", "other"), None);
        assert_eq!(cache.find("org/none", "main"), None);
        assert_eq!(complete(&expected, &Want::MODEL), Ok(expected.clone()));
        let half = cache.find("org/half", "main").unwrap();
        assert!(complete(&half, &Want::MODEL).is_err());
        let gguf = cache.find("org/gguf", "def").unwrap();
        let file = complete(&gguf, &Want::Gguf("Q8_0".to_owned())).unwrap();
        assert_eq!(file, gguf.join("sub/m-Q8_0.gguf"));
    }

    #[test]
    fn a_ref_leads_out_of_no_folder() {
        let (_folder, cache) = cache();
        write(&cache.root, "models--org--whole/refs/evil", "../../models--org--half");
        assert_eq!(cache.find("org/whole", "evil"), None);
    }

    #[test]
    fn complete_models_are_listed_with_their_sizes() {
        let (_folder, cache) = cache();
        let models = cache.models().unwrap();
        let seen: Vec<_> = models.iter().map(|m| (m.name.as_str(), m.bytes)).collect();
        assert_eq!(seen, [("org/gguf:sub/m-Q8_0.gguf", 4), ("org/whole", 8)]);
        assert_eq!(models[1].refs, ["main", "pr/1"]);
        assert_eq!(models[1].revision, "abc");
        let none = Cache { root: cache.root.join("none") };
        assert_eq!(none.models().unwrap(), []);
    }
}
