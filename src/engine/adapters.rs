//! The adapters that requests may name.

use std::{
    collections::BTreeMap,
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use indexmap::IndexMap;
use parking_lot::Mutex;
use playhouse_actors::logic::request::lora::{AdapterFingerprint, LoraRequest};

use crate::{executor::AdapterStore, model::AdapterError};

/// The reason why an adapter was not loaded or unloaded.
#[derive(Debug, thiserror::Error)]
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
    /// The load panicked with this message. This is a bug.
    #[error("loading an adapter panicked: {0}")]
    Panicked(String),
    /// The adapter cannot be used.
    #[error("Loading lora {name} failed: {source}")]
    Adapter {
        /// Its name.
        name: String,
        /// The reason.
        source: Box<AdapterError>,
    },
}

/// The adapters by their names.
#[derive(Debug)]
pub(super) struct AdapterRegistry {
    store: Arc<AdapterStore>,
    base_names: Vec<String>,
    /// The folder in which adapters are found by their names.
    resolver_dir: Option<PathBuf>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// In order of loading.
    loaded: IndexMap<String, Arc<LoraRequest>>,
    /// All contents that a name and a path had, by version.
    versions: BTreeMap<(String, String), BTreeMap<u32, AdapterFingerprint>>,
}

impl State {
    /// Returns the version of a content, which may be new.
    fn version(&mut self, name: &str, path: &str, content: AdapterFingerprint) -> u32 {
        let contents = self.versions.entry((name.to_owned(), path.to_owned())).or_default();
        if let Some((&version, _)) = contents.iter().find(|(_, known)| **known == content) {
            return version;
        }
        let version = contents.last_key_value().map_or(0, |(last, _)| last.saturating_add(1));
        contents.insert(version, content);
        version
    }
}

impl AdapterRegistry {
    pub(super) fn new(
        store: Arc<AdapterStore>,
        base_names: Vec<String>,
        resolver_dir: Option<PathBuf>,
    ) -> Self {
        Self { store, base_names, resolver_dir, state: Mutex::default() }
    }

    /// Returns all adapters, in order of loading.
    pub(super) fn list(&self) -> Vec<Arc<LoraRequest>> {
        self.state.lock().loaded.values().cloned().collect()
    }

    pub(super) fn get(&self, name: &str) -> Option<Arc<LoraRequest>> {
        self.state.lock().loaded.get(name).cloned()
    }

    /// Loads the adapter in the folder `path` under `name`. It blocks until the files are read.
    pub(super) fn load(
        &self,
        name: &str,
        path: &str,
        in_place: bool,
    ) -> Result<Arc<LoraRequest>, LoraError> {
        if name.is_empty() || path.is_empty() {
            return Err(LoraError::Empty);
        }
        self.check_name(name, in_place)?;
        let failed = |source| match source {
            AdapterError::NotFound { path } => LoraError::NoFiles { name: name.to_owned(), path },
            source => LoraError::Adapter { name: name.to_owned(), source: Box::new(source) },
        };
        let loaded = self.store.read(path).map_err(failed)?;
        let mut state = self.state.lock();
        if !in_place && state.loaded.contains_key(name) {
            return Err(LoraError::AlreadyLoaded { name: name.to_owned() });
        }
        let request = Arc::new(LoraRequest {
            name: name.to_owned(),
            path: path.to_owned(),
            version: state.version(name, path, loaded.fingerprint),
            fingerprint: loaded.fingerprint,
        });
        state.loaded.insert(name.to_owned(), Arc::clone(&request));
        drop(state);
        self.store.stage(Arc::clone(&request), loaded);
        Ok(request)
    }

    /// Knows the content of an adapter that requests of an earlier process use, so that no other
    /// content gets its version. The first content that is known keeps a version.
    pub(super) fn know(&self, adapter: &LoraRequest) {
        let mut state = self.state.lock();
        let key = (adapter.name.clone(), adapter.path.clone());
        let contents = state.versions.entry(key).or_default();
        contents.entry(adapter.version).or_insert(adapter.fingerprint);
    }

    /// Loads an adapter that an answer of an earlier process uses. No name leads to it.
    pub(super) fn restore(&self, adapter: Arc<LoraRequest>) -> Result<(), LoraError> {
        let failed =
            |source| LoraError::Adapter { name: adapter.name.clone(), source: Box::new(source) };
        let loaded = self.store.read(&adapter.path).map_err(failed)?;
        if loaded.fingerprint != adapter.fingerprint {
            let (name, path) = (adapter.name.clone(), adapter.path.clone());
            return Err(failed(AdapterError::Changed { name, path }));
        }
        self.know(&adapter);
        self.store.stage(adapter, loaded);
        Ok(())
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
        match self.load_lora_adapter(name, &path.to_string_lossy(), false).await {
            // Another request was faster.
            Err(LoraError::AlreadyLoaded { .. }) => registry.get(name).ok_or_else(unknown),
            loaded => loaded,
        }
    }

    /// Loads the adapter in the folder `path`, relative to the process's folder, under `name`.
    /// `in_place` replaces an adapter of that name: requests from now on use the new one.
    ///
    /// # Errors
    /// [`LoraError`] names the fault of the name or of the files.
    pub async fn load_lora_adapter(
        &self,
        name: &str,
        path: &str,
        in_place: bool,
    ) -> Result<Arc<LoraRequest>, LoraError> {
        if self.inner.adapters.is_none() {
            return Err(LoraError::Disabled);
        }
        let (inner, name, path) = (Arc::clone(&self.inner), name.to_owned(), path.to_owned());
        let disabled = || LoraError::Disabled;
        let load = move || {
            let registry = inner.adapters.as_ref().ok_or_else(disabled)?;
            registry.load(&name, &path, in_place)
        };
        let loaded = tokio::task::spawn_blocking(load).await;
        loaded.unwrap_or_else(|error| Err(LoraError::Panicked(error.to_string())))
    }

    /// Knows the adapter of restored requests. The engine itself loads it again for them.
    pub(crate) fn know_lora_adapter(&self, adapter: &LoraRequest) {
        if let Some(registry) = &self.inner.adapters {
            registry.know(adapter);
        }
    }

    /// Loads the adapter of an answer of an earlier process, whose requests are submitted again.
    ///
    /// # Errors
    /// [`LoraError::Adapter`] if its files are not those of then.
    pub(crate) async fn restore_lora_adapter(
        &self,
        adapter: &Arc<LoraRequest>,
    ) -> Result<(), LoraError> {
        if self.inner.adapters.is_none() {
            return Err(LoraError::Disabled);
        }
        let (inner, adapter) = (Arc::clone(&self.inner), Arc::clone(adapter));
        let load = move || match &inner.adapters {
            Some(registry) => registry.restore(adapter),
            None => Err(LoraError::Disabled),
        };
        let loaded = tokio::task::spawn_blocking(load).await;
        loaded.unwrap_or_else(|error| Err(LoraError::Panicked(error.to_string())))
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
