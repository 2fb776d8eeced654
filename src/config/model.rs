//! The model that the settings of an engine name.

use std::path::{Path, PathBuf};

use super::EngineConfig;
use crate::{gguf::is_gguf, model_files};

impl EngineConfig {
    /// Returns the defaults for the model in this folder.
    #[must_use]
    pub fn new(model: impl Into<PathBuf>) -> Self {
        Self { model: model.into(), ..Self::default() }
    }

    /// Returns the names that requests may use: the configured ones, or without any the model's
    /// path or name as given, as in vLLM. The demo model's is `demo-model`.
    #[must_use]
    pub fn served_names(&self) -> Vec<String> {
        if !self.served_model_name.is_empty() {
            return self.served_model_name.clone();
        }
        if model_files::is_demo_model(&self.model) {
            return vec![DEMO_MODEL.to_owned()];
        }
        vec![self.model_root()]
    }

    /// Returns the model's path or name as given.
    #[must_use]
    pub fn model_root(&self) -> String {
        let given = self.model_root.clone();
        given.unwrap_or_else(|| self.model.to_string_lossy().into_owned())
    }

    /// Returns the folder, or the GGUF file, that holds the tokenizer.
    #[must_use]
    pub fn tokenizer_path(&self) -> &Path {
        match &self.tokenizer {
            Some(file) if file.is_file() && !is_gguf(file) => file.parent().unwrap_or(file),
            Some(folder) => folder,
            None => &self.model,
        }
    }
}

const DEMO_MODEL: &str = "demo-model";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_served_under_its_path_as_given() {
        let config = EngineConfig::new("models/tiny");
        assert_eq!(config.served_names(), ["models/tiny"]);
        let named = EngineConfig { served_model_name: vec!["a".into(), "b".into()], ..config };
        assert_eq!(named.served_names(), ["a", "b"]);
        assert_eq!(EngineConfig::default().served_names(), ["demo-model"]);
    }
}
