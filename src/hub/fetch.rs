//! Fetches a model into the cache. The crate `hf-hub` lays out the cache, locks, and continues
//! partial files. Around it, this module pins one commit, checks space, sizes and hashes, reuses
//! blobs that are there, retries, and waits for other processes.

use std::{
    fs,
    io::IsTerminal,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use hf_hub::{
    Repo, RepoType,
    api::sync::{Api, ApiBuilder},
};
use serde_json::Value;

use super::{
    DownloadProgress, Hub, HubError, OnProgress, Source,
    cache::complete,
    files::{self, INDEX, MODULES, Want},
    space::{free_bytes, shown},
    transfer::{self, Failure, Report},
    verify::{self, Verdict},
};

/// Tries without progress after which a transfer has failed.
const TRIES: u32 = 5;
/// The pause after the first of them. Each further one is twice as long.
const PAUSE: Duration = Duration::from_millis(500);

/// A file as the hub lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HubFile {
    /// Its path in the repository.
    pub(super) path: String,
    /// Its bytes, if the hub says.
    pub(super) size: Option<u64>,
    /// Its SHA-256, of large files only.
    pub(super) sha256: Option<String>,
    /// The name of its blob in the cache.
    pub(super) blob: Option<String>,
}

impl HubFile {
    fn read(sibling: &Value) -> Option<Self> {
        let text =
            |value: &Value| value.as_str().filter(|text| is_word(text)).map(str::to_lowercase);
        let sha256 = text(&sibling["lfs"]["sha256"]);
        let blob = sha256.clone().or_else(|| text(&sibling["blobId"]));
        let size = sibling["lfs"]["size"].as_u64().or_else(|| sibling["size"].as_u64());
        let path = sibling["rfilename"].as_str()?.to_owned();
        Some(Self { path, size, sha256, blob })
    }
}

/// Fetches what is wanted of a model. Returns its folder, or its GGUF file.
///
/// # Errors
/// [`HubError`].
pub(super) fn fetch(
    hub: &Hub,
    source: &Source<'_>,
    want: &Want,
    progress: OnProgress<'_>,
) -> Result<PathBuf, HubError> {
    let mut fetch = Fetch::begin(hub, source, progress)?;
    let paths: Vec<_> = fetch.files.iter().map(|file| file.path.clone()).collect();
    let name = || source.name.to_owned();
    let lacking = |lacking| HubError::Lacking { name: name(), lacking };
    fetch.get_all(files::small(&paths, want).map_err(lacking)?)?;
    let read = |file: &str| crate::files::read(&fetch.snapshot.join(file)).ok();
    let (index, modules) = (read(INDEX), read(MODULES));
    let large = files::large(&paths, want, index.as_deref(), modules.as_deref());
    // The weights are last, so a folder with them is complete.
    fetch.get_all(large.map_err(lacking)?)?;
    fetch.name_commit()?;
    match want {
        Want::Gguf(_) => complete(&fetch.snapshot, want).map_err(lacking),
        // The engine reports what the repository itself lacks, for example a tokenizer.
        Want::Model { .. } | Want::Adapter | Want::Tokenizer => Ok(fetch.snapshot),
    }
}

/// The fetch of one commit.
struct Fetch<'a> {
    hub: &'a Hub,
    source: &'a Source<'a>,
    api: Api,
    commit: String,
    snapshot: PathBuf,
    files: Vec<HubFile>,
    state: DownloadProgress,
    progress: OnProgress<'a>,
}

impl<'a> Fetch<'a> {
    /// Asks the hub for the commit and its files.
    fn begin(
        hub: &'a Hub,
        source: &'a Source<'a>,
        progress: OnProgress<'a>,
    ) -> Result<Self, HubError> {
        let protocol =
            |why: &str| HubError::Protocol { endpoint: hub.endpoint.clone(), why: why.to_owned() };
        let api = ApiBuilder::from_cache(hf_hub::Cache::new(hub.cache.root.clone()))
            .with_endpoint(hub.endpoint.clone())
            .with_token(hub.token.as_ref().map(|token| token.reveal().to_owned()))
            .with_progress(false)
            .with_user_agent("playhouse", env!("CARGO_PKG_VERSION"))
            .build()
            .map_err(|error| protocol(&error.to_string()))?;
        let info = transfer::info(&api, repo(source, source.revision))
            .map_err(|failure| info_error(hub, source, failure))?;
        let commit = info["sha"].as_str().filter(|commit| is_word(commit));
        let commit = commit.ok_or_else(|| protocol("its answer has no commit"))?.to_owned();
        let siblings = info["siblings"].as_array();
        let siblings = siblings.ok_or_else(|| protocol("its answer lists no files"))?;
        let files = siblings.iter().filter_map(HubFile::read).collect();
        let snapshot = hub.cache.snapshot(source.repo, &commit);
        let state = DownloadProgress::default();
        Ok(Self { hub, source, api, commit, snapshot, files, state, progress })
    }

    /// Fetches these files, after a check of the space for all of them.
    fn get_all(&mut self, paths: Vec<String>) -> Result<(), HubError> {
        let is_wanted = |file: &&HubFile| paths.contains(&file.path);
        let mut files: Vec<_> = self.files.iter().filter(is_wanted).cloned().collect();
        files.sort_by_key(|file| paths.iter().position(|path| *path == file.path));
        self.check_space(&files)?;
        self.state.files_total += files.len();
        self.state.bytes_total += files.iter().filter_map(|file| file.size).sum::<u64>();
        (self.progress)(self.state);
        files.iter().try_for_each(|file| self.get(file))
    }

    fn check_space(&self, files: &[HubFile]) -> Result<(), HubError> {
        let is_there = |file: &&HubFile| {
            let blob = file.blob.as_ref().map(|blob| self.blobs().join(blob));
            self.snapshot.join(&file.path).exists() || blob.is_some_and(|blob| blob.exists())
        };
        let left = |file: &HubFile| file.size.unwrap_or(0).saturating_sub(self.part_len(file));
        let needed = files.iter().filter(|file| !is_there(file)).map(left);
        let needed = needed.fold(0, u64::saturating_add);
        let cache = &self.hub.cache.root;
        match free_bytes(cache) {
            Some(free) if free < needed => Err(HubError::NoSpace {
                name: self.source.name.to_owned(),
                needed: shown(needed),
                free: shown(free),
                cache: cache.clone(),
            }),
            _ => Ok(()),
        }
    }

    /// Fetches one file, unless it is there.
    fn get(&mut self, file: &HubFile) -> Result<(), HubError> {
        let path = self.snapshot.join(&file.path);
        let begin = self.state.bytes;
        let (mut tries, mut has_waited, mut is_logged) = (0, false, false);
        while !self.is_there(file, &path)? {
            if !std::mem::replace(&mut is_logged, true) {
                self.log(file);
            }
            let part = self.part_len(file);
            let failure = match self.transfer(file, begin) {
                Ok(()) => match self.verdict(&path, file)? {
                    Verdict::Right => break,
                    Verdict::Wrong(what) => return Err(self.corrupt(file, &path, what)),
                    Verdict::Short => {
                        self.keep_part(file, &path)?;
                        Failure::Network("the connection ended early".to_owned())
                    }
                },
                Err(failure) => failure,
            };
            if matches!(failure, Failure::Locked) {
                if !std::mem::replace(&mut has_waited, true) {
                    tracing::info!("another process fetches {}: waiting for it", file.path);
                }
                continue;
            }
            tries = if self.part_len(file) > part { 1 } else { tries + 1 };
            if !failure.is_transient() || tries == TRIES {
                return Err(self.error(file, failure));
            }
            let pause = PAUSE * 2_u32.pow(tries - 1);
            tracing::warn!("{}: {}; trying again in {pause:?}", file.path, failure.why());
            thread::park_timeout(pause);
        }
        self.state.bytes = begin + file.size.unwrap_or(0);
        self.state.files += 1;
        (self.progress)(self.state);
        Ok(())
    }

    /// Returns whether the snapshot has the file, and it is right. Uses a blob that is there, for
    /// example that of an earlier commit. Removes a wrong file.
    fn is_there(&self, file: &HubFile, path: &Path) -> Result<bool, HubError> {
        if path.symlink_metadata().is_ok() {
            if path.exists() && self.verdict(path, file)? == Verdict::Right {
                return Ok(true);
            }
            tracing::warn!("{} is not the hub's file: fetching it anew", path.display());
            verify::remove(path).map_err(|error| self.disk(error))?;
        }
        let Some(blob) = &file.blob else { return Ok(false) };
        let stored = self.blobs().join(blob);
        if file.size == Some(0) && !stored.exists() {
            // A file is fetched by ranges of its bytes, and an empty one has no range.
            self.make_empty(&stored).map_err(|error| self.disk(error))?;
        }
        if !stored.exists() {
            return Ok(false);
        }
        match self.verdict(&stored, file)? {
            Verdict::Right => verify::link(blob, path, file).map_err(|error| self.disk(error)),
            _ => fs::remove_file(&stored).map(|()| false).map_err(|error| self.disk(error)),
        }
    }

    fn make_empty(&self, blob: &Path) -> std::io::Result<()> {
        fs::create_dir_all(self.blobs())?;
        let mut options = fs::File::options();
        crate::files::open_to_write(blob, options.write(true).create(true).truncate(false))
            .map(drop)
    }

    fn transfer(&mut self, file: &HubFile, begin: u64) -> Result<(), Failure> {
        // A request for bytes behind the end would fail for ever.
        if let Some(part) =
            self.part(file).filter(|_| file.size.is_some_and(|size| self.part_len(file) >= size))
            && part.exists()
        {
            fs::remove_file(part).map_err(Failure::Disk)?;
        }
        let repo = self.api.repo(repo(self.source, &self.commit));
        let (state, progress) = (&mut self.state, &mut *self.progress);
        transfer::file(repo, &file.path, |report| {
            match report {
                Report::Begin => state.bytes = begin,
                Report::Bytes(bytes) => state.bytes += bytes,
            }
            progress(*state);
        })
    }

    /// Makes a file whose end is missing the beginning of the next try.
    fn keep_part(&self, file: &HubFile, path: &Path) -> Result<(), HubError> {
        let kept = match (path.canonicalize(), self.part(file)) {
            (Ok(blob), Some(part)) => fs::rename(blob, part).and_then(|()| fs::remove_file(path)),
            _ => verify::remove(path),
        };
        kept.map_err(|error| self.disk(error))
    }

    /// Lets the branch or tag mean the commit. `hf-hub` has made the commit a branch of itself.
    fn name_commit(&self) -> Result<(), HubError> {
        if self.source.revision == self.commit {
            return Ok(());
        }
        let cache = hf_hub::Cache::new(self.hub.cache.root.clone());
        let repo = cache.repo(repo(self.source, self.source.revision));
        repo.create_ref(&self.commit).map_err(|error| self.disk(error))?;
        let of_commit = self.hub.cache.repo(self.source.repo).join("refs").join(&self.commit);
        // Without it, nothing changes for a reader.
        let _ = fs::remove_file(of_commit);
        Ok(())
    }

    fn blobs(&self) -> PathBuf {
        self.hub.cache.repo(self.source.repo).join("blobs")
    }

    /// Returns the place of `hf-hub`'s partial file.
    fn part(&self, file: &HubFile) -> Option<PathBuf> {
        Some(self.blobs().join(format!("{}.part", file.blob.as_ref()?)))
    }

    fn part_len(&self, file: &HubFile) -> u64 {
        let part = self.part(file).and_then(|part| fs::metadata(part).ok());
        part.map_or(0, |part| part.len())
    }

    fn verdict(&self, path: &Path, file: &HubFile) -> Result<Verdict, HubError> {
        verify::check(path, file).map_err(|error| self.disk(error))
    }

    /// Logs the begin of a transfer where no bar can show it.
    fn log(&self, file: &HubFile) {
        if !std::io::stderr().is_terminal() {
            let size = file.size.map_or_else(|| "unknown size".to_owned(), shown);
            tracing::info!("fetching {} of {} ({size})", file.path, self.source.name);
        }
    }

    fn corrupt(&self, file: &HubFile, path: &Path, what: String) -> HubError {
        match verify::remove(path) {
            Err(error) => self.disk(error),
            Ok(()) => {
                let (name, file) = (self.source.name.to_owned(), file.path.clone());
                HubError::Corrupt { name, file, what }
            }
        }
    }

    fn disk(&self, source: std::io::Error) -> HubError {
        HubError::Cache { cache: self.hub.cache.root.clone(), source }
    }

    fn error(&self, file: &HubFile, failure: Failure) -> HubError {
        match failure {
            Failure::Status(status @ (401 | 403)) => refused(self.hub, self.source, status),
            Failure::Disk(error) => self.disk(error),
            failure => HubError::Broken {
                name: self.source.name.to_owned(),
                file: file.path.clone(),
                why: failure.why(),
            },
        }
    }
}

fn repo(source: &Source<'_>, revision: &str) -> Repo {
    Repo::with_revision(source.repo.to_owned(), RepoType::Model, revision.to_owned())
}

fn info_error(hub: &Hub, source: &Source<'_>, failure: Failure) -> HubError {
    let (name, endpoint) = (source.name.to_owned(), hub.endpoint.clone());
    match failure {
        Failure::Status(status @ (401 | 403)) => refused(hub, source, status),
        Failure::Status(404) => HubError::NotFound { name, endpoint },
        Failure::Protocol(why) => HubError::Protocol { endpoint, why },
        failure => HubError::Unreachable { name, endpoint, why: failure.why() },
    }
}

fn refused(hub: &Hub, source: &Source<'_>, status: u16) -> HubError {
    HubError::Refused {
        name: source.name.to_owned(),
        repo: source.repo.to_owned(),
        endpoint: hub.endpoint.clone(),
        status,
        has_token: hub.token.is_some(),
    }
}

/// Returns whether `text` may be a commit or a hash: part of a path and of nothing else.
fn is_word(text: &str) -> bool {
    !text.is_empty() && text.len() <= 128 && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}
