//! Models by name: `org/name` is found in Hugging Face's cache, else fetched from the hub.
//!
//! `name` parses names, and `files` decides which files of a repository a model needs. `cache`
//! reads the folder that Hugging Face's own programs share, and `fetch` fills it.

mod cache;
mod environment;
mod error;
#[cfg(feature = "hub")]
mod fetch;
mod files;
mod name;
#[cfg(feature = "hub")]
mod space;
mod speculators;
#[cfg(feature = "hub")]
mod transfer;
#[cfg(feature = "hub")]
mod verify;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub(crate) use self::cache::CachedModel;
use self::{
    cache::{Cache, complete, repo_of_snapshot},
    environment::Environment,
    files::Want,
    name::ModelName,
};
pub use self::{error::HubError, files::Lacking};
use crate::{
    config::{EngineConfig, LoadFormat, Secret, SpeculativeMethod},
    model_files,
};

/// The branch that a name without a revision means.
const MAIN: &str = "main";

/// How far the download of a model has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DownloadProgress {
    /// Complete files.
    pub files: usize,
    /// Files that are needed. The number grows once the files that list others are there.
    pub files_total: usize,
    /// Bytes on disk.
    pub bytes: u64,
    /// Bytes of all these files.
    pub bytes_total: u64,
}

/// The settings of models by name.
#[derive(Debug, Clone)]
struct Hub {
    cache: Cache,
    /// The hub's URL, without a slash at the end.
    #[cfg_attr(not(feature = "hub"), expect(dead_code, reason = "nothing is fetched"))]
    endpoint: String,
    #[cfg_attr(not(feature = "hub"), expect(dead_code, reason = "nothing is fetched"))]
    token: Option<Secret>,
    is_offline: bool,
}

/// A model on the hub.
struct Source<'a> {
    /// The name as given, for errors.
    name: &'a str,
    /// `org/name`.
    repo: &'a str,
    /// A branch, a tag or a commit.
    revision: &'a str,
}

type OnProgress<'a> = &'a mut dyn FnMut(DownloadProgress);

/// Returns the settings with folders in place of the names of models. Blocks while models are
/// fetched. Settings without such names, and those that this function has returned, stay the same.
///
/// # Errors
/// [`HubError`] if a model is not in the cache and cannot be fetched.
pub(crate) fn with_files(
    mut config: EngineConfig,
    progress: OnProgress<'_>,
) -> Result<EngineConfig, HubError> {
    if config.model_root.is_some() {
        return Ok(config);
    }
    let hub = LazyHub::of(&config);
    let given = config.model.to_string_lossy().into_owned();
    let want = Want::Model {
        weights: config.load_format != LoadFormat::Dummy,
        tokenizer: config.tokenizer.is_none(),
    };
    let folder = match named(&config.model) {
        Some(name) => {
            let revision = config.revision.as_deref();
            Some(hub.model(&given, &name, revision, &want, progress)?)
        }
        None => {
            let folder = model_files::demo_vision(&config.model);
            refuse_revision(folder.as_deref().unwrap_or(&config.model), &config)?;
            folder
        }
    };
    let head = folder.clone().unwrap_or_else(|| config.model.clone());
    let folder = match speculators::verifier(&head, &given)? {
        Some(verifier) => {
            speculators::draft_with(&mut config, head, &given, &verifier)?;
            let name = verifier.to_string();
            Some(hub.find_or_fetch(&name, &verifier, None, want, progress)?)
        }
        None => folder,
    };
    if let Some(folder) = folder {
        config.model = folder;
        if config.served_model_name.is_empty() {
            config.served_model_name = vec![given.clone()];
        }
        config.model_root = Some(given);
    }
    if let Some(tokenizer) = &mut config.tokenizer {
        hub.replace(tokenizer, Want::Tokenizer, progress)?;
    }
    let speculative = config.speculative_config.as_mut().map(|config| &mut config.method);
    // Neither reads a tokenizer that it needs.
    let model = Want::Model { weights: true, tokenizer: false };
    if let Some(
        SpeculativeMethod::DraftModel { model: draft }
        | SpeculativeMethod::Head { model: Some(draft), .. },
    ) = speculative
    {
        hub.replace(draft, model, progress)?;
    }
    for module in &mut config.lora_modules {
        module.path = hub.adapter(&module.path, progress)?;
    }
    for given in config.default_mm_loras.iter_mut().flat_map(|loras| loras.0.values_mut()) {
        *given = hub.adapter(given, progress)?;
    }
    Ok(config)
}

/// Returns the folder of an adapter: `path` with the home folder in place of `~`, or that of the
/// adapter of this name. Blocks while it is fetched.
///
/// # Errors
/// [`HubError`] if it has the form of a name, is no path, and is neither in the cache nor fetched.
pub(crate) fn adapter(config: &EngineConfig, path: &str) -> Result<String, HubError> {
    LazyHub::of(config).adapter(path, &mut |_| ())
}

/// Returns an adapter's place as its user knows it: its name if `folder` is in a cache, or else the
/// folder.
pub(crate) fn adapter_root(folder: &str) -> String {
    repo_of_snapshot(Path::new(folder)).unwrap_or_else(|| folder.to_owned())
}

/// Returns the settings with a folder that has at least the tokenizer.
///
/// # Errors
/// As [`with_files`].
pub(crate) fn with_tokenizer(
    mut config: EngineConfig,
    progress: OnProgress<'_>,
) -> Result<EngineConfig, HubError> {
    let hub = LazyHub::of(&config);
    let path = config.tokenizer.as_mut().unwrap_or(&mut config.model);
    if let Some(folder) = model_files::demo_vision(path) {
        *path = folder;
    }
    let Some(name) = named(path) else {
        return refuse_revision(&config.model, &config).map(|()| config);
    };
    let (given, revision) = (path.to_string_lossy().into_owned(), config.revision.as_deref());
    *path = hub.find_or_fetch(&given, &name, revision, Want::Tokenizer, progress)?;
    Ok(config)
}

/// Brings the model of the settings up to date with the hub, checks all its files, and returns its
/// folder or GGUF file. `None` if it is no name.
///
/// # Errors
/// As [`with_files`].
pub(crate) fn pull(
    config: &EngineConfig,
    progress: OnProgress<'_>,
) -> Result<Option<PathBuf>, HubError> {
    let given = config.model.to_string_lossy();
    let Some(name) = ModelName::parse(&given) else { return Ok(None) };
    let hub = LazyHub::of(config);
    let revision = config.revision.as_deref();
    let (hub, want) = (hub.get()?, want_of(&name, Want::MODEL));
    let source = Source { name: &given, repo: &name.repo, revision: one(&given, &name, revision)? };
    match hub.is_offline {
        true => hub.find(&source, &want),
        false => hub.fetch(&source, &want, progress),
    }
    .map(Some)
}

/// Returns the models in the cache.
///
/// # Errors
/// [`HubError::Cache`] if it cannot be read, and [`HubError::NoHome`].
pub(crate) fn cached_models(config: &EngineConfig) -> Result<Vec<CachedModel>, HubError> {
    let cache = LazyHub::of(config).get()?.cache;
    cache.models().map_err(|source| HubError::Cache { cache: cache.root, source })
}

/// Returns the name in `path`, unless that is a path.
fn named(path: &Path) -> Option<ModelName> {
    ModelName::of_path(path).filter(|_| !model_files::exists(path))
}

fn want_of(name: &ModelName, other: Want) -> Want {
    name.file.clone().map_or(other, Want::Gguf)
}

/// Rejects the setting `revision`, because `model` is no name.
fn refuse_revision(model: &Path, config: &EngineConfig) -> Result<(), HubError> {
    // A path with the form of no name that does not exist gets the engine's error.
    match &config.revision {
        Some(revision) if model_files::exists(model) => {
            Err(HubError::RevisionOfPath(revision.clone()))
        }
        _ => Ok(()),
    }
}

/// Returns the one revision that a name or the setting gives.
fn one<'a>(
    given: &str,
    name: &'a ModelName,
    setting: Option<&'a str>,
) -> Result<&'a str, HubError> {
    match (name.revision.as_deref(), setting) {
        (Some(of_name), Some(setting)) if of_name != setting => {
            Err(HubError::TwoRevisions { name: given.to_owned(), revision: setting.to_owned() })
        }
        (of_name, setting) => Ok(of_name.or(setting).unwrap_or(MAIN)),
    }
}

/// The settings, read when the first name needs them.
struct LazyHub {
    download_dir: Option<PathBuf>,
    token: Option<Secret>,
    is_offline: bool,
}

impl LazyHub {
    fn of(config: &EngineConfig) -> Self {
        Self {
            download_dir: config.download_dir.clone(),
            token: config.hf_token.clone(),
            is_offline: config.offline,
        }
    }

    fn get(&self) -> Result<Hub, HubError> {
        self.with(Environment::read(|name| std::env::var_os(name))?)
    }

    fn with(&self, environment: Environment) -> Result<Hub, HubError> {
        let Environment { cache, endpoint, token, is_offline } = environment;
        let token = self.token.clone().or(token);
        let is_plain = |token: &Secret| token.reveal().chars().all(|c| c.is_ascii_graphic());
        if !token.as_ref().is_none_or(is_plain) {
            return Err(HubError::Token);
        }
        let root = self.download_dir.clone().or(cache).ok_or(HubError::NoHome)?;
        // Links in the cache are relative to absolute paths.
        let root =
            std::path::absolute(&root).map_err(|source| HubError::Cache { cache: root, source })?;
        let is_offline = self.is_offline || is_offline;
        Ok(Hub { cache: Cache { root }, endpoint, token, is_offline })
    }

    /// Does the same as [`Self::find_or_fetch`]. A head that is given as the model is found in the
    /// cache without a tokenizer.
    fn model(
        &self,
        given: &str,
        name: &ModelName,
        revision: Option<&str>,
        want: &Want,
        progress: OnProgress<'_>,
    ) -> Result<PathBuf, HubError> {
        let found = self.find_or_fetch(given, name, revision, want.clone(), progress);
        let lacks_tokenizer = |error: &HubError| {
            matches!(error, HubError::Offline { lacking: Some(Lacking::NoTokenizer), .. })
        };
        match found {
            Err(error) if lacks_tokenizer(&error) => {
                let head = Want::Model { weights: true, tokenizer: false };
                match self.find_or_fetch(given, name, revision, head, progress) {
                    Ok(folder) if speculators::verifier(&folder, given)?.is_some() => Ok(folder),
                    _ => Err(error),
                }
            }
            found => found,
        }
    }

    fn find_or_fetch(
        &self,
        given: &str,
        name: &ModelName,
        revision: Option<&str>,
        want: Want,
        progress: OnProgress<'_>,
    ) -> Result<PathBuf, HubError> {
        let revision = one(given, name, revision)?;
        let source = Source { name: given, repo: &name.repo, revision };
        let (hub, want) = (self.get()?, want_of(name, want));
        match hub.find(&source, &want) {
            Err(HubError::Offline { .. }) if !hub.is_offline => hub.fetch(&source, &want, progress),
            found => found,
        }
    }

    /// Returns the folder of an adapter.
    fn adapter(&self, path: &str, progress: OnProgress<'_>) -> Result<String, HubError> {
        let in_home = environment::in_home(path, &|name: &str| std::env::var_os(name));
        let mut path = PathBuf::from(in_home.unwrap_or_else(|| path.to_owned()));
        self.replace(&mut path, Want::Adapter, progress)?;
        Ok(path.to_string_lossy().into_owned())
    }

    /// Puts a folder in the place of a name.
    fn replace(
        &self,
        path: &mut PathBuf,
        want: Want,
        progress: OnProgress<'_>,
    ) -> Result<(), HubError> {
        if let Some(name) = named(path) {
            let given = path.to_string_lossy().into_owned();
            *path = self.find_or_fetch(&given, &name, None, want, progress)?;
        }
        Ok(())
    }
}

impl Hub {
    /// Returns the folder or file of a model in the cache.
    ///
    /// # Errors
    /// [`HubError::Offline`] if it is not there, or not completely.
    fn find(&self, source: &Source<'_>, want: &Want) -> Result<PathBuf, HubError> {
        let found = self.cache.find(source.repo, source.revision);
        let lacking = match found.map(|folder| complete(&folder, want)) {
            Some(Ok(path)) => return Ok(path),
            Some(Err(lacking)) => Some(lacking),
            None => None,
        };
        let cache = self.cache.root.clone();
        Err(HubError::Offline { name: source.name.to_owned(), cache, lacking })
    }

    #[cfg(feature = "hub")]
    fn fetch(
        &self,
        source: &Source<'_>,
        want: &Want,
        progress: OnProgress<'_>,
    ) -> Result<PathBuf, HubError> {
        fetch::fetch(self, source, want, progress)
    }

    #[cfg(not(feature = "hub"))]
    fn fetch(&self, source: &Source<'_>, _: &Want, _: OnProgress<'_>) -> Result<PathBuf, HubError> {
        let cache = self.cache.root.clone();
        Err(HubError::NotBuilt { name: source.name.to_owned(), cache })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns settings whose cache is `root`, and that fetch nothing.
    fn offline(root: &Path, model: &str) -> EngineConfig {
        let (download_dir, offline) = (Some(root.to_owned()), true);
        EngineConfig { download_dir, offline, ..EngineConfig::new(model) }
    }

    fn resolved(config: EngineConfig) -> Result<EngineConfig, String> {
        with_files(config, &mut |_| ()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_name_becomes_the_folder_in_the_cache_and_stays_the_served_name() {
        let root = tempfile::TempDir::new().unwrap();
        let folder = root.path().join("models--org--demo/snapshots/abc");
        std::fs::create_dir_all(&folder).unwrap();
        for file in ["config.json", "tokenizer.json", "model.safetensors"] {
            std::fs::write(folder.join(file), "{}").unwrap();
        }
        let config = resolved(offline(root.path(), "org/demo@abc")).unwrap();
        assert_eq!(config.model, folder);
        assert_eq!(config.served_names(), ["org/demo@abc"]);
        assert_eq!(config.model_root(), "org/demo@abc");
        assert_eq!(resolved(config.clone()).unwrap(), config);
        let revision = Some("abc".to_owned());
        let config = resolved(EngineConfig { revision, ..offline(root.path(), "org/demo") });
        assert_eq!(config.unwrap().model, folder);
    }

    #[test]
    fn a_path_is_a_path_first() {
        let config = EngineConfig::new("src/hub");
        assert_eq!(resolved(config.clone()).unwrap(), config);
        let config = EngineConfig::default();
        assert_eq!(resolved(config.clone()).unwrap(), config);
        let config = EngineConfig::new("/nowhere/model");
        assert_eq!(resolved(config.clone()).unwrap(), config);
    }

    #[test]
    fn the_model_that_sees_keeps_its_name() {
        let config = resolved(EngineConfig::new("demo-vision")).unwrap();
        assert_eq!(Some(&config.model), model_files::demo_vision("demo-vision".as_ref()).as_ref());
        assert_eq!(config.served_names(), ["demo-vision"]);
        let revision = Some("v2".to_owned());
        let error = resolved(EngineConfig { revision, ..EngineConfig::new("demo-vision") });
        assert!(error.unwrap_err().starts_with("--revision = v2: only a model by its name"));
    }

    #[test]
    fn nothing_is_fetched_offline() {
        let root = tempfile::TempDir::new().unwrap();
        let error = resolved(offline(root.path(), "org/demo")).unwrap_err();
        let begin = "the model org/demo is no folder or file here, and not in the cache ";
        assert!(error.starts_with(begin) && error.contains("--offline"), "{error}");
        assert!(error.contains("run `playhouse pull org/demo`"), "{error}");
        let half = root.path().join("models--org--demo/snapshots/main");
        std::fs::create_dir_all(&half).unwrap();
        std::fs::write(half.join("config.json"), "{}").unwrap();
        let error = resolved(offline(root.path(), "org/demo")).unwrap_err();
        assert!(
            error.contains("its copy there: it has neither tokenizer.json nor tekken.json"),
            "{error}"
        );
    }

    #[test]
    fn a_revision_is_given_once_and_to_a_name() {
        let root = tempfile::TempDir::new().unwrap();
        let revision = Some("v2".to_owned());
        let config =
            EngineConfig { revision: revision.clone(), ..offline(root.path(), "org/demo@v1") };
        let error = resolved(config).unwrap_err();
        assert!(error.contains("org/demo@v1 names a revision, and --revision = v2"), "{error}");
        let error = resolved(EngineConfig { revision, ..EngineConfig::default() }).unwrap_err();
        assert!(error.starts_with("--revision = v2: only a model by its name"), "{error}");
    }

    #[test]
    fn a_token_is_one_word() {
        let token = Some(Secret::new("two words"));
        let lazy = LazyHub { download_dir: None, token, is_offline: false };
        let environment = Environment::read(|_| Some("http://x".into())).unwrap();
        assert!(matches!(lazy.with(environment), Err(HubError::Token)));
    }
}
