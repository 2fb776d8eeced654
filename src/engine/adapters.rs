//! The adapters that requests may name.

use std::{
    collections::BTreeMap,
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use indexmap::IndexMap;
use parking_lot::Mutex;
use playhouse_actors::{
    logic::request::{
        lora::{AdapterFingerprint, LoraRequest},
        media::Modality,
    },
    ports::AdapterCheckError,
};

use super::adapter_loads::{AdapterLoads, GivenUp, NoResult};
use crate::{
    executor::AdapterStore,
    hub::{self, HubError},
    model::AdapterError,
};

/// Most names with paths whose first content is remembered.
const MAX_KNOWN: usize = 1_024;

/// The reason why an adapter was not loaded or unloaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoraError {
    /// The engine takes no adapters.
    #[error("LoRA adapters are not enabled; start with enable_lora")]
    Disabled,
    /// The name or the path is empty.
    #[error("Both 'lora_name' and 'lora_path' must be provided.")]
    Empty,
    /// An adapter of this name is loaded.
    #[error(
        "The lora adapter '{name}' has already been loaded. If you want to load the adapter in \
         place, set 'load_inplace' to True."
    )]
    AlreadyLoaded {
        /// The name.
        name: String,
    },
    /// The base model has this name.
    #[error("The lora adapter name '{name}' conflicts with a served base model.")]
    BaseModel {
        /// The name.
        name: String,
    },
    /// There is no adapter of this name.
    #[error("The lora adapter '{name}' cannot be found.")]
    Unknown {
        /// The name.
        name: String,
    },
    /// There is no adapter at the path.
    #[error("Loading lora {name} failed: No adapter found for {path}")]
    NoFiles {
        /// The name.
        name: String,
        /// The path, as it was given.
        path: String,
    },
    /// The adapter is given by its name on the hub, and cannot be had.
    #[error("Loading lora {name} failed: No adapter found for {path}: {source}")]
    Hub {
        /// Its name.
        name: String,
        /// Its name on the hub.
        path: String,
        /// The reason.
        source: Box<HubError>,
    },
    /// The engine process cannot use the adapter, for this reason.
    #[error("Loading lora {name} failed: {why}")]
    Refused {
        /// Its name.
        name: String,
        /// The reason.
        why: String,
    },
    /// The engine process gave no answer.
    #[error("Loading lora {name} failed: the engine process gave no answer")]
    NoAnswer {
        /// The adapter's name.
        name: String,
    },
    /// The load panicked with this message. This is a bug.
    #[error("loading an adapter panicked: {0}")]
    Panicked(String),
    /// The load took too long, or waited too long for others.
    #[error("Loading lora {name} failed: reading {path} takes too long")]
    TooLong {
        /// The name.
        name: String,
        /// The path, as it was given.
        path: String,
    },
    /// The adapter cannot be used.
    #[error("Loading lora {name} failed: {source}")]
    Adapter {
        /// Its name.
        name: String,
        /// The reason.
        source: Box<AdapterError>,
    },
}

/// The part of the program that reads adapters.
#[derive(Debug)]
pub(super) enum AdapterReader {
    /// The store of this process.
    Store(Arc<AdapterStore>),
    /// The engine process, which has the model.
    EngineProcess,
}

/// The adapters by their names.
#[derive(Debug)]
pub(super) struct AdapterRegistry {
    reader: AdapterReader,
    base_names: Vec<String>,
    /// The folder in which adapters are found by their names.
    resolver_dir: Option<PathBuf>,
    loads: AdapterLoads,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// In order of loading.
    loaded: IndexMap<String, Arc<LoraRequest>>,
    first_contents: FirstContents,
}

/// The first content that each name and path had. It is version 0, and all others are version 1,
/// which the fingerprint tells apart.
#[derive(Debug, Default)]
struct FirstContents(BTreeMap<(String, String), AdapterFingerprint>);

impl FirstContents {
    /// Returns the version of a content. None is forgotten, because blocks of the KV cache may
    /// still have its hash. Where the list is full, a new name has version 1 from its beginning.
    fn version(&mut self, name: &str, path: &str, content: AdapterFingerprint) -> u32 {
        let key = (name.to_owned(), path.to_owned());
        match self.0.get(&key) {
            Some(first) => u32::from(*first != content),
            None if self.0.len() >= MAX_KNOWN => 1,
            None => {
                self.0.insert(key, content);
                0
            }
        }
    }
}

impl AdapterRegistry {
    pub(super) fn new(
        reader: AdapterReader,
        base_names: Vec<String>,
        resolver_dir: Option<PathBuf>,
    ) -> Self {
        let (loads, state) = Default::default();
        Self { reader, base_names, resolver_dir, loads, state }
    }

    /// Returns all adapters, in order of loading.
    pub(super) fn list(&self) -> Vec<Arc<LoraRequest>> {
        self.state.lock().loaded.values().cloned().collect()
    }

    pub(super) fn get(&self, name: &str) -> Option<Arc<LoraRequest>> {
        self.state.lock().loaded.get(name).cloned()
    }

    /// Checks whether an adapter may be loaded under this name.
    fn check(&self, name: &str, path: &str, in_place: bool) -> Result<(), LoraError> {
        if name.is_empty() || path.is_empty() {
            return Err(LoraError::Empty);
        }
        self.check_name(name, in_place)
    }

    /// Enters an adapter that was read, under `name`. A load that was given up has no effect.
    fn enter(
        &self,
        name: &str,
        path: &str,
        in_place: bool,
        fingerprint: AdapterFingerprint,
        given_up: &GivenUp,
    ) -> Result<Arc<LoraRequest>, LoraError> {
        let mut state = self.state.lock();
        if !in_place && state.loaded.contains_key(name) {
            return Err(LoraError::AlreadyLoaded { name: name.to_owned() });
        }
        if given_up.is_set() {
            return Err(LoraError::TooLong { name: name.to_owned(), path: path.to_owned() });
        }
        let version = state.first_contents.version(name, path, fingerprint);
        let (name, path) = (name.to_owned(), path.to_owned());
        let request = Arc::new(LoraRequest { name: name.clone(), path, version, fingerprint });
        state.loaded.insert(name, Arc::clone(&request));
        Ok(request)
    }

    /// Reads and enters the adapter in the folder `path`. It blocks until the files are read.
    fn load(
        &self,
        store: &AdapterStore,
        name: &str,
        path: &str,
        in_place: bool,
        given_up: &GivenUp,
    ) -> Result<Arc<LoraRequest>, LoraError> {
        let failed = |source| match source {
            AdapterError::NotFound { path } => LoraError::NoFiles { name: name.to_owned(), path },
            source => LoraError::Adapter { name: name.to_owned(), source: Box::new(source) },
        };
        let loaded = store.read(path).map_err(failed)?;
        let request = self.enter(name, path, in_place, loaded.fingerprint, given_up)?;
        store.stage(Arc::clone(&request), loaded);
        Ok(request)
    }

    /// Returns the adapter of an earlier process with its version in this one.
    pub(super) fn known(&self, adapter: &LoraRequest) -> Arc<LoraRequest> {
        let LoraRequest { name, path, fingerprint, .. } = adapter.clone();
        let version = self.state.lock().first_contents.version(&name, &path, fingerprint);
        Arc::new(LoraRequest { name, path, version, fingerprint })
    }

    /// Loads an adapter that an answer of an earlier process uses. No name leads to it. It blocks
    /// until the files are read.
    fn restore(
        &self,
        store: &AdapterStore,
        adapter: &LoraRequest,
        given_up: &GivenUp,
    ) -> Result<Arc<LoraRequest>, LoraError> {
        let loaded = store.read(&adapter.path).map_err(|source| match source {
            AdapterError::NotFound { path } => {
                LoraError::NoFiles { name: adapter.name.clone(), path }
            }
            source => LoraError::Adapter { name: adapter.name.clone(), source: Box::new(source) },
        })?;
        check_unchanged(adapter, loaded.fingerprint)?;
        let known = self.known(adapter);
        if !given_up.is_set() {
            store.stage(Arc::clone(&known), loaded);
        }
        Ok(known)
    }

    fn check_name(&self, name: &str, in_place: bool) -> Result<(), LoraError> {
        let name = || name.to_owned();
        if self.base_names.contains(&name()) {
            return Err(LoraError::BaseModel { name: name() });
        }
        if !in_place && self.state.lock().loaded.contains_key(&name()) {
            return Err(LoraError::AlreadyLoaded { name: name() });
        }
        Ok(())
    }

    /// Removes an adapter's name. Requests that use it keep it until they end.
    pub(super) fn unload(&self, name: &str) -> Result<(), LoraError> {
        match self.state.lock().loaded.shift_remove(name) {
            Some(_) => Ok(()),
            None => Err(LoraError::Unknown { name: name.to_owned() }),
        }
    }

    /// Returns the folder of an adapter that is not loaded, if the resolver finds one.
    pub(super) fn resolve(&self, name: &str) -> Option<PathBuf> {
        let folder = self.resolver_dir.as_ref()?;
        // A name must not lead out of the folder.
        let mut components = Path::new(name).components();
        let is_plain = matches!(components.next(), Some(Component::Normal(_)));
        if !is_plain || components.next().is_some() {
            return None;
        }
        let path = folder.join(name);
        path.join("adapter_config.json").is_file().then_some(path)
    }
}

/// Checks that an adapter has the content that the requests of an earlier process use.
fn check_unchanged(adapter: &LoraRequest, content: AdapterFingerprint) -> Result<(), LoraError> {
    if content == adapter.fingerprint {
        return Ok(());
    }
    let (name, path) = (adapter.name.clone(), adapter.path.clone());
    let source = Box::new(AdapterError::Changed { name: name.clone(), path });
    Err(LoraError::Adapter { name, source })
}

impl super::Engine {
    /// Returns the adapters that requests may use, in order of loading.
    #[must_use]
    pub fn lora_adapters(&self) -> Vec<Arc<LoraRequest>> {
        self.inner.adapters.as_ref().map(AdapterRegistry::list).unwrap_or_default()
    }

    /// Returns whether an adapter of this name is loaded.
    #[must_use]
    pub fn has_lora_adapter(&self, name: &str) -> bool {
        self.inner.adapters.as_ref().is_some_and(|registry| registry.get(name).is_some())
    }

    /// Returns the adapter of this name, for [`RawRequest::lora`](crate::api::RawRequest::lora). An
    /// adapter that is not loaded is looked for in the folder `lora_resolver_dir`, and loaded.
    ///
    /// # Errors
    /// [`LoraError::Unknown`] if there is none, and [`LoraError::Adapter`] if it cannot be used.
    pub async fn lora_adapter(&self, name: &str) -> Result<Arc<LoraRequest>, LoraError> {
        let unknown = || LoraError::Unknown { name: name.to_owned() };
        let registry = self.inner.adapters.as_ref().ok_or_else(unknown)?;
        if let Some(adapter) = registry.get(name) {
            return Ok(adapter);
        }
        let path = registry.resolve(name).ok_or_else(unknown)?;
        match self.load_adapter_folder(name, &path.to_string_lossy(), false).await {
            // Another request was faster.
            Err(LoraError::AlreadyLoaded { .. }) => registry.get(name).ok_or_else(unknown),
            loaded => loaded,
        }
    }

    /// Returns the adapter of a request that names the base model and has items of these kinds:
    /// that of `default_mm_loras`. `None` if that has none of the kinds, or several.
    ///
    /// # Errors
    /// As [`Engine::lora_adapter`](super::Engine::lora_adapter).
    pub async fn default_lora_adapter(
        &self,
        kinds: &[Modality],
    ) -> Result<Option<Arc<LoraRequest>>, LoraError> {
        let Some(defaults) = &self.config().default_mm_loras else { return Ok(None) };
        let mut found = defaults.0.keys().filter(|kind| kinds.contains(kind));
        match (found.next(), found.next()) {
            (Some(kind), None) => self.lora_adapter(kind.as_str()).await.map(Some),
            _ => Ok(None),
        }
    }

    /// Loads the adapter in the folder `path`, relative to the process's folder, under `name`. It
    /// may begin with `~`, or be the name of an adapter on the hub, which is fetched. `in_place`
    /// replaces an adapter of that name: requests from now on use the new one.
    ///
    /// # Errors
    /// [`LoraError`] names the fault of the name or of the files. A load that takes longer than a
    /// minute is given up. A fetch goes on then, so that a later call finds the files.
    pub async fn load_lora_adapter(
        &self,
        name: &str,
        path: &str,
        in_place: bool,
    ) -> Result<Arc<LoraRequest>, LoraError> {
        let registry = self.inner.adapters.as_ref().ok_or(LoraError::Disabled)?;
        registry.check(name, path, in_place)?;
        let config = self.config().clone();
        let (own_name, own_path) = (name.to_owned(), path.to_owned());
        let find = move |_: &AdapterRegistry, _: &GivenUp| {
            hub::adapter(&config, &own_path).map_err(|source| {
                let source = Box::new(source);
                LoraError::Hub { name: own_name, path: own_path, source }
            })
        };
        let folder = self.run_load(name, path, find).await?;
        self.load_adapter_folder(name, &folder, in_place).await
    }

    /// Does the same for a folder.
    pub(super) async fn load_adapter_folder(
        &self,
        name: &str,
        path: &str,
        in_place: bool,
    ) -> Result<Arc<LoraRequest>, LoraError> {
        let registry = self.inner.adapters.as_ref().ok_or(LoraError::Disabled)?;
        registry.check(name, path, in_place)?;
        match &registry.reader {
            AdapterReader::Store(store) => {
                let store = Arc::clone(store);
                let (own_name, own_path) = (name.to_owned(), path.to_owned());
                let load = move |registry: &AdapterRegistry, given_up: &GivenUp| {
                    registry.load(&store, &own_name, &own_path, in_place, given_up)
                };
                self.run_load(name, path, load).await
            }
            AdapterReader::EngineProcess => {
                let content = self.content_there(name, path).await?;
                registry.enter(name, path, in_place, content, &GivenUp::default())
            }
        }
    }

    /// Returns the adapter of restored requests as this process knows it. The engine itself loads
    /// it again for them.
    pub(crate) fn known_lora_adapter(&self, adapter: &Arc<LoraRequest>) -> Arc<LoraRequest> {
        let registry = self.inner.adapters.as_ref();
        registry.map_or_else(|| Arc::clone(adapter), |registry| registry.known(adapter))
    }

    /// Loads the adapter of an answer of an earlier process, whose requests are submitted again.
    ///
    /// # Errors
    /// [`LoraError::Adapter`] if its files are not those of then.
    pub(crate) async fn restore_lora_adapter(
        &self,
        adapter: &LoraRequest,
    ) -> Result<Arc<LoraRequest>, LoraError> {
        let registry = self.inner.adapters.as_ref().ok_or(LoraError::Disabled)?;
        let LoraRequest { name, path, .. } = adapter;
        match &registry.reader {
            AdapterReader::Store(store) => {
                let (store, adapter) = (Arc::clone(store), adapter.clone());
                let load = move |registry: &AdapterRegistry, given_up: &GivenUp| {
                    registry.restore(&store, &adapter, given_up)
                };
                self.run_load(name, path, load).await
            }
            AdapterReader::EngineProcess => {
                check_unchanged(adapter, self.content_there(name, path).await?)?;
                Ok(registry.known(adapter))
            }
        }
    }

    /// Runs a load on a thread of its own.
    async fn run_load<T: Send + 'static>(
        &self,
        name: &str,
        path: &str,
        load: impl FnOnce(&AdapterRegistry, &GivenUp) -> Result<T, LoraError> + Send + 'static,
    ) -> Result<T, LoraError> {
        let registry = self.inner.adapters.as_ref().ok_or(LoraError::Disabled)?;
        let inner = Arc::clone(&self.inner);
        let load = move |given_up: &GivenUp| {
            load(inner.adapters.as_ref().ok_or(LoraError::Disabled)?, given_up)
        };
        match registry.loads.run(path, load).await {
            Ok(loaded) => loaded,
            Err(NoResult::Panicked(why)) => Err(LoraError::Panicked(why)),
            Err(NoResult::TooLong) => {
                Err(LoraError::TooLong { name: name.to_owned(), path: path.to_owned() })
            }
        }
    }

    /// Returns the content of an adapter that the engine process reads.
    async fn content_there(&self, name: &str, path: &str) -> Result<AdapterFingerprint, LoraError> {
        let name = || name.to_owned();
        let checked = self.inner.system.check_adapter(path).await;
        let checked = checked.ok_or_else(|| LoraError::NoAnswer { name: name() })?;
        checked.map_err(|error| match error {
            AdapterCheckError::NotFound { path } => LoraError::NoFiles { name: name(), path },
            AdapterCheckError::Refused(why) => LoraError::Refused { name: name(), why },
        })
    }

    /// Removes the adapter of this name. Requests that use it keep it until they end.
    ///
    /// # Errors
    /// [`LoraError::Unknown`] if there is none.
    pub fn unload_lora_adapter(&self, name: &str) -> Result<(), LoraError> {
        match &self.inner.adapters {
            Some(registry) => registry.unload(name),
            None => Err(LoraError::Disabled),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_tell_the_first_content_apart_and_are_bounded() {
        let mut known = FirstContents::default();
        let content = |byte| AdapterFingerprint([byte; 32]);
        assert_eq!(known.version("x", "/x", content(0)), 0);
        for byte in 1..200 {
            assert_eq!(known.version("x", "/x", content(byte)), 1);
        }
        assert_eq!(known.version("x", "/x", content(0)), 0, "the first content is back");
        assert_eq!(known.version("x", "/y", content(1)), 0, "another path");
        for number in 0..2 * MAX_KNOWN {
            known.version(&format!("{number}"), "/z", content(3));
        }
        assert_eq!(known.0.len(), MAX_KNOWN);
        assert_eq!(known.version("one more", "/z", content(3)), 1);
        assert_eq!(known.version("x", "/x", content(0)), 0, "none was forgotten");
    }
}
