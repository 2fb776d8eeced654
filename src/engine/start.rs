//! Turns the engine's settings into those of the model and the executors. Describes a loaded model.

use std::sync::Arc;

use playhouse_actors::{
    logic::request::ids::TokenId,
    ports::{ModelInfo, TextCodec},
};
use playhouse_kernels::{DeviceKind, KvDtype, QuantizationScheme, WeightDtype};

use serde::{Deserialize, Serialize};

use super::{DefaultSampling, StartError};
use crate::{
    config::{self, EngineConfig, GenerationConfigSource},
    executor,
    hub::DownloadProgress,
    model::{GenerationConfig, LoadProgress, Pooler, QuantizedWeights, pooling::PairInput},
};

/// How far the start has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum StartProgress {
    /// The files of a model by name are being fetched.
    Download(DownloadProgress),
    /// The weights are loaded. The tokenizer, which is read at the same time, is not ready yet.
    Tokenizer,
    /// Weights are being packed.
    Weights(LoadProgress),
    /// On a GPU, kernels are being compiled, and new ones are being measured.
    WarmUp {
        /// Steps done.
        steps: usize,
        /// Steps in all.
        steps_total: usize,
    },
    /// The vocabulary is being prepared for grammars.
    Grammars,
    /// The KV cache is being allocated.
    KvCache {
        /// Its size.
        bytes: u64,
    },
}

/// A loaded model, its formats and its tokenizer.
#[derive(Clone)]
pub struct LoadedModel {
    /// The facts that the actors need.
    pub info: ModelInfo,
    /// The model's path as the settings give it.
    pub root: String,
    /// HF's name of the architecture.
    pub architecture: String,
    /// Whether the model has parts for media, which are not served.
    pub serves_text_alone: bool,
    /// The format of the weights.
    pub dtype: WeightDtype,
    /// The format of quantized linear layers, if any are.
    pub quantized_weights: Option<QuantizedWeights>,
    /// The device that the model runs on, as `--device` names it.
    pub device: String,
    /// The kind of that device.
    pub device_kind: DeviceKind,
    /// The format of the KV cache.
    pub kv_cache_dtype: KvDtype,
    /// The size of the KV cache.
    pub kv_cache_bytes: u64,
    /// The sampling defaults of the model's authors.
    pub default_sampling: DefaultSampling,
    /// Tokenizer and chat template.
    pub codec: Arc<dyn TextCodec>,
    /// The pooler, if the model has one.
    pub pooler: Option<PoolerFacts>,
    /// The sources of the chat templates, the default first.
    pub chat_templates: Vec<String>,
}

/// The facts about a pooler that its routes need.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PoolerFacts {
    /// Whether the pooler classifies.
    pub classifies: bool,
    /// How its classifier takes a pair.
    pub pairs: PairInput,
    /// Whether its vectors are weights of the vocabulary.
    pub is_sparse: bool,
    /// The names of the classes, of a pooler that classifies.
    pub labels: Vec<String>,
    /// The prompts of sentence-transformers, by the kind of a text.
    pub prompts: Vec<(String, String)>,
    /// Whether the tokens of those are left out of the pooling.
    pub excludes_prompt: bool,
    /// The tokens of documents that a comparison of vectors of tokens leaves out.
    pub skipped_tokens: Vec<TokenId>,
    /// Number of elements that the vector of a prompt in pieces keeps: sentence-transformers'
    /// `truncate_dim`.
    #[serde(default)]
    pub cut_of_joined: Option<u32>,
    /// Whether a prompt has a query and all its documents.
    #[serde(default)]
    pub ranks_lists: bool,
    /// Whether classes of tokens are one weight each, and answers have no rows (BGE-M3).
    #[serde(default)]
    pub weighs_tokens: bool,
}

impl PoolerFacts {
    /// Returns the facts about a pooler.
    pub(super) fn of(pooler: &Pooler) -> Self {
        let classifier = pooler.classifier.as_ref();
        Self {
            classifies: classifier.is_some(),
            pairs: classifier.map(|classifier| classifier.pairs.clone()).unwrap_or_default(),
            is_sparse: pooler.vocabulary.is_some(),
            labels: classifier.map(|classifier| classifier.labels.clone()).unwrap_or_default(),
            prompts: pooler.prompts.clone(),
            excludes_prompt: pooler.excludes_prompt,
            skipped_tokens: pooler.skipped_tokens.clone(),
            cut_of_joined: executor::cut_of_joined(pooler),
            ranks_lists: pooler.ranking.is_some(),
            weighs_tokens: pooler.token_heads.is_some(),
        }
    }
}

impl std::fmt::Debug for LoadedModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LoadedModel")
            .field("root", &self.root)
            .field("architecture", &self.architecture)
            .field("info", &self.info)
            .finish_non_exhaustive()
    }
}

pub(super) fn kv_cache_dtype(configured: config::KvCacheDtype, weights: WeightDtype) -> KvDtype {
    match configured {
        config::KvCacheDtype::Auto => weights.into(),
        config::KvCacheDtype::Float32 => KvDtype::F32,
        config::KvCacheDtype::Float16 => KvDtype::F16,
        config::KvCacheDtype::Bfloat16 => KvDtype::Bf16,
        config::KvCacheDtype::Int8PerTokenHead => KvDtype::Int8,
    }
}

pub(super) fn quantization(config: &EngineConfig) -> Option<QuantizationScheme> {
    match config.quantization {
        config::Quantization::None => None,
        config::Quantization::Int8 => Some(QuantizationScheme::Int8),
        config::Quantization::Int4 => {
            Some(QuantizationScheme::Int4 { group_size: config.quantization_group_size })
        }
    }
}

pub(super) fn generation_config(config: &EngineConfig) -> Result<GenerationConfig, StartError> {
    let generation = match &config.generation_config {
        GenerationConfigSource::Auto => GenerationConfig::of_model(&config.model)?,
        GenerationConfigSource::Folder(folder) => {
            GenerationConfig { bounds_clients: true, ..GenerationConfig::from_dir(folder)? }
        }
        // As in vLLM, the model's end-of-sequence tokens still count.
        GenerationConfigSource::Vllm => {
            let of_model = GenerationConfig::of_model(&config.model)?;
            let GenerationConfig { is_of_file, eos_token_ids, .. } = of_model;
            GenerationConfig { is_of_file, eos_token_ids, ..GenerationConfig::default() }
        }
    };
    Ok(match &config.override_generation_config {
        Some(changes) => generation.with(changes)?,
        None => generation,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_of_the_api_keep_the_models_end_of_sequence_tokens() {
        let folder = tempfile::TempDir::new().unwrap();
        let json = r#"{"eos_token_id": [7, 9], "temperature": 0.6}"#;
        std::fs::write(folder.path().join("generation_config.json"), json).unwrap();
        let from = |source| {
            let config =
                EngineConfig { generation_config: source, ..EngineConfig::new(folder.path()) };
            let generation = generation_config(&config).unwrap();
            (generation.eos_token_ids, generation.temperature)
        };
        assert_eq!(from(GenerationConfigSource::Auto), (vec![7, 9], Some(0.6)));
        assert_eq!(from(GenerationConfigSource::Vllm), (vec![7, 9], None));
        let other = tempfile::TempDir::new().unwrap();
        let other = GenerationConfigSource::Folder(other.path().to_owned());
        assert_eq!(from(other), (Vec::new(), None));
        let changes = serde_json::json!({"temperature": 0.1}).as_object().unwrap().clone();
        let config = EngineConfig {
            override_generation_config: Some(config::JsonObject(changes)),
            ..EngineConfig::new(folder.path())
        };
        let changed = generation_config(&config).unwrap();
        assert_eq!((changed.eos_token_ids, changed.temperature), (vec![7, 9], Some(0.1)));
    }

    /// As vLLM's `override_max_tokens` has it.
    #[test]
    fn a_number_of_tokens_that_the_operator_chooses_bounds_clients() {
        let folder = tempfile::TempDir::new().unwrap();
        let json = r#"{"max_new_tokens": 8}"#;
        std::fs::write(folder.path().join("generation_config.json"), json).unwrap();
        let limited = |config: EngineConfig| {
            let sampling = DefaultSampling::from(&generation_config(&config).unwrap());
            (sampling.max_tokens, sampling.limited(Some(20)), sampling.limited(Some(2)))
        };
        let plain = EngineConfig::new(folder.path());
        assert_eq!(limited(plain.clone()), (Some(8), Some(20), Some(2)), "of the model's authors");
        let source = GenerationConfigSource::Folder(folder.path().to_owned());
        let other = EngineConfig { generation_config: source, ..plain.clone() };
        assert_eq!(limited(other), (Some(8), Some(8), Some(2)));
        let changes = serde_json::json!({"max_new_tokens": 9}).as_object().unwrap().clone();
        let changes = Some(config::JsonObject(changes));
        let changed = EngineConfig { override_generation_config: changes, ..plain };
        assert_eq!(limited(changed), (Some(9), Some(9), Some(2)));
    }
}
