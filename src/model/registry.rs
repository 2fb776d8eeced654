//! Families of models by the name of their architecture.

use std::{fmt, sync::Arc};

use indexmap::IndexMap;

use super::audio;
use super::dense::DenseFamily;
use super::encoder_decoder::text;
use super::families::{self, Entry};
use super::{Model, ModelError, ModelSource, pooling, static_embedding};

/// A family of models. It makes a [`Model`] from a folder.
///
/// The models of one family have the same architecture, and differ in their `config.json`.
pub trait ModelFamily: Send + Sync {
    /// Builds the model that `source` describes. It is called once for each start, on the thread
    /// that loads. The death of an actor does not call it again.
    ///
    /// # Errors
    /// [`ModelError`] names the fault of the folder or the settings for the operator.
    fn load(&self, source: &mut ModelSource<'_>) -> Result<Model, ModelError>;
}

/// The families that a model may be of, by their entry in `architectures` of `config.json`.
/// [`ModelRegistry::default`] has those of this crate.
#[derive(Clone)]
pub struct ModelRegistry {
    families: IndexMap<String, Arc<dyn ModelFamily>>,
}

/// The registry has a family for that architecture already.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is a model family for the architecture '{architecture}' already")]
pub struct DuplicateFamily {
    /// The architecture.
    pub architecture: String,
}

impl ModelRegistry {
    /// Returns a registry without families.
    #[must_use]
    pub fn empty() -> Self {
        Self { families: IndexMap::new() }
    }

    /// Adds the family of the models whose `architectures` is `architecture`.
    ///
    /// # Errors
    /// [`DuplicateFamily`] if the architecture has a family already, which stays.
    pub fn register(
        &mut self,
        architecture: impl Into<String>,
        family: impl ModelFamily + 'static,
    ) -> Result<(), DuplicateFamily> {
        let architecture = architecture.into();
        if self.families.contains_key(&architecture) {
            return Err(DuplicateFamily { architecture });
        }
        self.families.insert(architecture, Arc::new(family));
        Ok(())
    }

    /// Returns all architectures, in the order in which they were registered.
    pub fn architectures(&self) -> impl Iterator<Item = &str> {
        self.families.keys().map(String::as_str)
    }

    pub(super) fn get(&self, architecture: &str) -> Option<&dyn ModelFamily> {
        self.families.get(architecture).map(|family| &**family)
    }
}

impl Default for ModelRegistry {
    fn default() -> Self {
        let ours = families::entries().map(|(architecture, entry)| {
            let family: Arc<dyn ModelFamily> =
                Arc::new(DenseFamily::of_language(architecture, entry));
            (architecture.to_owned(), family)
        });
        let converted = pooling::converted().map(|(architecture, entry, origin)| {
            let entry = DenseFamily { entry, architecture: architecture.clone(), origin };
            let entry: Arc<dyn ModelFamily> = Arc::new(entry);
            (architecture, entry)
        });
        let wrapped = pooling::wrapped().map(|(architecture, wrapper, origin)| {
            let entry = Entry::Wrapper(wrapper);
            let entry = DenseFamily { entry, architecture: architecture.clone(), origin };
            let entry: Arc<dyn ModelFamily> = Arc::new(entry);
            (architecture, entry)
        });
        let both = audio::families().chain(text::families());
        let both = both.chain(static_embedding::families());
        let both = both.map(|(name, family)| (name.to_owned(), family));
        Self { families: ours.chain(converted).chain(wrapped).chain(both).collect() }
    }
}

impl fmt::Debug for ModelRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.families.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::model::{LoadOptions, load_model};

    /// A family that refuses every model.
    struct Refuses;

    impl ModelFamily for Refuses {
        fn load(&self, source: &mut ModelSource<'_>) -> Result<Model, ModelError> {
            Err(ModelError::Family(source.config()["architectures"].to_string().into()))
        }
    }

    fn load(architecture: &str, families: ModelRegistry) -> String {
        let folder = tempfile::TempDir::new().unwrap();
        let config = format!(r#"{{"architectures": ["{architecture}"]}}"#);
        std::fs::write(folder.path().join("config.json"), config).unwrap();
        let options = LoadOptions { families, ..LoadOptions::default() };
        load_model(folder.path(), &options, &mut |_| ()).err().unwrap().to_string()
    }

    #[test]
    fn a_registered_family_loads_the_models_of_its_architecture() {
        let mut families = ModelRegistry::default();
        families.register("MineForCausalLM", Refuses).unwrap();
        assert_eq!(load("MineForCausalLM", families.clone()), r#"["MineForCausalLM"]"#);
        let unknown = load("MinorForCausalLM", families);
        assert!(unknown.contains("MineForCausalLM, "), "{unknown}");
    }

    #[test]
    fn an_architecture_has_one_family() {
        let mut families = ModelRegistry::default();
        let refused = families.register("Qwen3ForCausalLM", Refuses).unwrap_err();
        assert_eq!(refused.architecture, "Qwen3ForCausalLM");
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/demo-model");
        let options = LoadOptions { families, ..LoadOptions::default() };
        let model = load_model(&folder, &options, &mut |_| ()).unwrap();
        assert_eq!(model.architecture, "Qwen3ForCausalLM");
    }
}
