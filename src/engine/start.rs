//! From settings to those of the model, the executors and the actors; and what a start results in.

use std::{path::Path, sync::Arc};

use playhouse_actors::ports::{ModelInfo, TextCodec};
use playhouse_kernels::{DeviceKind, KvDtype, QuantizationScheme, WeightDtype};

use super::{DefaultSampling, StartError};
use crate::{
    config::{self, EngineConfig, GenerationConfigSource},
    model::{GenerationConfig, LoadProgress, QuantizedWeights},
};

/// How far the start has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartProgress {
    /// All is done but the tokenizer, which is read meanwhile.
    Tokenizer,
    /// Weights are being packed.
    Weights(LoadProgress),
    /// On a GPU, kernels are compiled, and those not yet known are measured.
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

/// A loaded model and what goes with it.
#[derive(Clone)]
pub struct LoadedModel {
    /// What the actors need to know.
    pub info: ModelInfo,
    /// The model's folder as it was given.
    pub root: String,
    /// HF's name of the architecture.
    pub architecture: String,
    /// The format of the weights.
    pub dtype: WeightDtype,
    /// What the weights of linear layers are, where they are quantized.
    pub quantized_weights: Option<QuantizedWeights>,
    /// What it runs on, as `--device` names it.
    pub device: String,
    /// What that is.
    pub device_kind: DeviceKind,
    /// The format of the KV cache.
    pub kv_cache_dtype: KvDtype,
    /// The size of the KV cache.
    pub kv_cache_bytes: u64,
    /// What the model's authors would sample with.
    pub default_sampling: DefaultSampling,
    /// Tokenizer and chat template.
    pub codec: Arc<dyn TextCodec>,
    /// The sources of the chat templates: the default one first.
    pub chat_templates: Vec<String>,
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
    let folder: &Path = match &config.generation_config {
        GenerationConfigSource::Auto => return Ok(GenerationConfig::of_model(&config.model)?),
        GenerationConfigSource::Folder(folder) => folder,
        // As in vLLM, the model's tokens that end a sequence count all the same.
        GenerationConfigSource::Vllm => {
            let GenerationConfig { eos_token_ids, .. } = GenerationConfig::of_model(&config.model)?;
            return Ok(GenerationConfig { eos_token_ids, ..GenerationConfig::default() });
        }
    };
    Ok(GenerationConfig::from_dir(folder)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_of_the_api_leave_the_model_its_ends() {
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
    }
}
