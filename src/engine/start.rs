//! From settings to a loaded model with its KV cache.

use std::{panic::resume_unwind, path::Path, sync::Arc, thread};

use playhouse_actors::ports::{ModelInfo, TextCodec};
use playhouse_kernels::{
    DeviceKind, KvDtype, QuantizationScheme, ThreadPool, WeightDtype, device_memory,
};

use super::{DefaultSampling, StartError, device, kv_blocks};
use crate::{
    config::{self, EngineConfig, GenerationConfigSource},
    executor::{ComputeThreads, KvSettings, RunnerFactory, warm_up},
    files,
    gguf::is_gguf,
    grammar::GrammarStore,
    model::{
        ActivationQuantization, Dtype, GenerationConfig, LoadFormat, LoadOptions, LoadProgress,
        QuantizedWeights, load_model,
    },
    model_files,
    text::HfTextCodec,
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
    pub architecture: &'static str,
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

/// Everything that the actors need.
pub(super) struct Loaded {
    pub(super) model: LoadedModel,
    pub(super) executors: Arc<RunnerFactory>,
    /// What the executors constrain outputs by, where it is to be compiled before.
    pub(super) grammars: Arc<GrammarStore>,
}

/// Loads everything that the actors need. Blocks for as long as that takes.
pub(super) fn load(
    config: &EngineConfig,
    mut progress: impl FnMut(StartProgress),
) -> Result<Loaded, StartError> {
    let is_folder = model_files::exists(&config.model) && !config.model.is_file();
    if !is_folder && !is_gguf(&config.model) {
        return Err(StartError::NoModel(config.model.clone()));
    }
    let device = device::choose(config.device)?;
    let options = LoadOptions {
        load_format: match config.load_format {
            config::LoadFormat::Auto => LoadFormat::Auto,
            config::LoadFormat::Dummy => LoadFormat::Dummy,
        },
        dtype: dtype(config.dtype),
        quantization: quantization(config),
        activation_quantization: activation_quantization(config.activation_quantization),
        max_model_len: config.max_model_len,
        device: device.device.clone(),
        tensor_cores: device::tensor_cores(config),
        weights_cache: config.weights_cache.clone(),
    };
    let threads = compute_threads(config)?;
    // A large vocabulary takes about as long as a gigabyte of weights.
    let (codec, model) = thread::scope(|scope| {
        let reader = thread::Builder::new().name("playhouse-tokenizer".to_owned());
        let codec = reader.spawn_scoped(scope, || load_codec(config))?;
        let model = threads.on_queue(|| {
            load_model(&config.model, &options, &mut |p| progress(StartProgress::Weights(p)))
        });
        progress(StartProgress::Tokenizer);
        Ok((codec.join().unwrap_or_else(|panic| resume_unwind(panic)), model))
    })
    .map_err(StartError::Threads)?;
    let (codec, model) = (codec?, model?);
    let model_config = &model.config;
    codec.check_vocab(model_config.vocab_size)?;
    config.validate_for(model_config.max_model_len)?;
    let generation = generation_config(config)?;
    let kv_cache_dtype = kv_cache_dtype(config.kv_cache_dtype, model.dtype);
    let mut warmed = |steps, steps_total| progress(StartProgress::WarmUp { steps, steps_total });
    let warm_up = || warm_up(config, &*model, kv_cache_dtype, &device, &mut warmed);
    threads.run(warm_up).map_err(|error| StartError::WarmUp {
        device: device.id.clone(),
        why: error.to_string(),
    })?;
    let num_blocks = kv_blocks::count(config, &*model, kv_cache_dtype, &device)?;
    let info = ModelInfo {
        vocab_size: model_config.vocab_size as u32,
        max_model_len: model_config.max_model_len,
        block_size: config.block_size,
        num_blocks,
        eos_token_ids: eos_token_ids(&codec, &model_config.eos_token_ids, &generation),
    };
    let kv_cache_bytes =
        model.kv_cache_shape(num_blocks, config.block_size).bytes(kv_cache_dtype) as u64;
    let loaded = LoadedModel {
        info: info.clone(),
        root: config.model.to_string_lossy().into_owned(),
        architecture: model_config.architecture(),
        dtype: model.dtype,
        quantized_weights: model.quantized_weights.clone(),
        device: device.id.clone(),
        device_kind: device.kind,
        kv_cache_dtype,
        kv_cache_bytes,
        default_sampling: DefaultSampling::from(&generation),
        chat_templates: codec.chat_templates(),
        codec: Arc::new(codec),
    };
    progress(StartProgress::Grammars);
    let codec = Arc::clone(&loaded.codec);
    let grammars = GrammarStore::new(codec, info.vocab_size, info.eos_token_ids.clone())
        .with_any_whitespace_disabled(config.disable_any_whitespace);
    let grammars = Arc::new(grammars);
    let total_bytes = device_memory(&device.device).and_then(|memory| memory.total_bytes);
    let kv_settings = KvSettings {
        dtype: kv_cache_dtype,
        device: device.device,
        step_graph_bytes: config.step_graph_bytes(total_bytes),
    };
    progress(StartProgress::KvCache { bytes: kv_cache_bytes });
    let executors = RunnerFactory::new(model, info, kv_settings, Arc::clone(&grammars), threads)?;
    Ok(Loaded { model: loaded, executors: Arc::new(executors), grammars })
}

fn compute_threads(config: &EngineConfig) -> Result<ComputeThreads, StartError> {
    if config.threads.is_none() && !config.pin_threads {
        return ComputeThreads::common().map_err(StartError::Threads);
    }
    let count = config.threads.unwrap_or_else(|| ThreadPool::common().num_threads());
    ComputeThreads::own(count, config.pin_threads).map_err(StartError::Threads)
}

fn load_codec(config: &EngineConfig) -> Result<HfTextCodec, StartError> {
    let codec = HfTextCodec::load(config.tokenizer_path())?;
    let Some(path) = &config.chat_template else { return Ok(codec) };
    let source = files::read_to_string(path)
        .map_err(|source| StartError::File { path: path.clone(), source })?;
    Ok(codec.with_chat_template(source))
}

fn dtype(configured: config::Dtype) -> Dtype {
    match configured {
        config::Dtype::Auto => Dtype::Auto,
        config::Dtype::Float32 => Dtype::F32,
        config::Dtype::Float16 => Dtype::F16,
        config::Dtype::Bfloat16 => Dtype::Bf16,
    }
}

fn kv_cache_dtype(configured: config::KvCacheDtype, weights: WeightDtype) -> KvDtype {
    match configured {
        config::KvCacheDtype::Auto => weights.into(),
        config::KvCacheDtype::Float32 => KvDtype::F32,
        config::KvCacheDtype::Float16 => KvDtype::F16,
        config::KvCacheDtype::Bfloat16 => KvDtype::Bf16,
        config::KvCacheDtype::Int8PerTokenHead => KvDtype::Int8,
    }
}

fn quantization(config: &EngineConfig) -> Option<QuantizationScheme> {
    match config.quantization {
        config::Quantization::None => None,
        config::Quantization::Int8 => Some(QuantizationScheme::Int8),
        config::Quantization::Int4 => {
            Some(QuantizationScheme::Int4 { group_size: config.quantization_group_size })
        }
    }
}

fn activation_quantization(configured: config::ActivationQuantization) -> ActivationQuantization {
    match configured {
        config::ActivationQuantization::Auto => ActivationQuantization::Auto,
        config::ActivationQuantization::None => ActivationQuantization::None,
        config::ActivationQuantization::Int8 => ActivationQuantization::Int8,
    }
}

fn generation_config(config: &EngineConfig) -> Result<GenerationConfig, StartError> {
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

/// The tokenizer's end-of-sequence token first, as in vLLM: that one stops without a stop reason.
fn eos_token_ids(codec: &HfTextCodec, model: &[u32], generation: &GenerationConfig) -> Vec<u32> {
    let mut ids: Vec<u32> = codec.eos_token().map(|(_, id)| id).into_iter().collect();
    for &id in model.iter().chain(&generation.eos_token_ids) {
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    ids
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
