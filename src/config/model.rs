//! The model that the settings of an engine name.

use std::path::{Path, PathBuf};

use super::{EngineConfig, GenerationConfigSource};
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

    /// Returns the settings for another model on the same machine. Those that belong to the model
    /// itself are the defaults: revision, tokenizer, chat template, changes of `config.json`,
    /// pooler, generation defaults from a folder, adapters, and names made from the model's.
    #[must_use]
    pub fn for_model(&self, model: impl Into<PathBuf>) -> Self {
        let is_made = self.served_model_name == [self.model_root()];
        Self {
            model: model.into(),
            model_root: None,
            revision: None,
            tokenizer: None,
            chat_template: None,
            hf_overrides: None,
            pooler_config: None,
            generation_config: match &self.generation_config {
                GenerationConfigSource::Folder(_) => GenerationConfigSource::Auto,
                source => source.clone(),
            },
            override_generation_config: None,
            lora_modules: Vec::new(),
            default_mm_loras: None,
            served_model_name: if is_made { Vec::new() } else { self.served_model_name.clone() },
            ..self.clone()
        }
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

    #[test]
    fn another_model_keeps_the_machine_and_given_names() {
        let config = EngineConfig {
            model_root: Some("org/a".to_owned()),
            served_model_name: vec!["org/a".to_owned()],
            tokenizer: Some("a".into()),
            revision: Some("v1".to_owned()),
            max_num_seqs: 3,
            ..EngineConfig::new("cache/a")
        };
        let other = config.for_model("b");
        assert_eq!(other.served_names(), ["b"], "the name was made from the model's");
        assert_eq!(other, EngineConfig { max_num_seqs: 3, ..EngineConfig::new("b") });
        let given = EngineConfig { served_model_name: vec!["mine".to_owned()], ..config };
        assert_eq!(given.for_model("b").served_names(), ["mine"]);
    }
}
