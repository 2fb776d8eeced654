//! Loading a model folder.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use burn::tensor::Device;
use playhouse_kernels::{
    ActivationDtype, KernelError, LinearWeight, QuantizationScheme, TensorCores, WeightDtype,
    WeightVector,
};

use super::{
    Model, ModelError, QuantizedWeights, activations::Circumstances, config::ModelConfig, decoder,
    inventory,
};
use crate::{
    config::{ActivationQuantization, Dtype, LoadFormat},
    model_files,
    weights::{
        Checkpoint, MatrixElements, Quantization, READER_VERSION, StoredDtype, StoredMatrix,
        StoredTensor, WeightsCache,
    },
};

/// What peft's folders hold. transformers would load the model that it names, and apply the adapter.
const ADAPTER_CONFIG: &str = "adapter_config.json";

/// How to load a model.
#[derive(Debug, Clone)]
pub struct LoadOptions {
    /// Where the weights come from.
    pub load_format: LoadFormat,
    /// The type of the weights.
    pub dtype: Dtype,
    /// How linear layers are quantized; the output layer never to less than 8 bits.
    pub quantization: Option<QuantizationScheme>,
    /// What activations are when they meet quantized weights.
    pub activation_quantization: ActivationQuantization,
    /// A context shorter than the model's own, in tokens.
    pub max_model_len: Option<usize>,
    /// Where the model will run.
    pub device: Device,
    /// Whether it may multiply there by tensor cores.
    pub tensor_cores: TensorCores,
    /// Folder to keep packed weights in, and to map them from.
    pub weights_cache: Option<PathBuf>,
}

impl Default for LoadOptions {
    /// The checkpoint's types and context, on the CPU, without a cache.
    fn default() -> Self {
        Self {
            load_format: LoadFormat::default(),
            dtype: Dtype::default(),
            quantization: None,
            activation_quantization: ActivationQuantization::default(),
            max_model_len: None,
            device: Device::flex(),
            tensor_cores: TensorCores::default(),
            weights_cache: None,
        }
    }
}

/// How far loading has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LoadProgress {
    /// Tensors packed so far.
    pub tensors: usize,
    /// Tensors in the checkpoint; 0 where they are made up.
    pub tensors_total: usize,
    /// Bytes of the checkpoint packed so far.
    pub bytes: u64,
    /// Size of the checkpoint.
    pub bytes_total: u64,
    /// Whether they come packed from a cache.
    pub is_cached: bool,
}

/// Loads `model`, a Hugging Face folder (`config.json` and safetensors files) or a GGUF file: maps
/// its weights and packs each for the device. `progress` is called after each tensor, and at the end with everything
/// done, also where the checkpoint holds tensors that the model does not need.
///
/// # Errors
/// [`ModelError`], naming the file and the field or tensor at fault.
pub fn load_model(
    model: &Path,
    options: &LoadOptions,
    progress: &mut dyn FnMut(LoadProgress),
) -> Result<Arc<Model>, ModelError> {
    let adapter = model.join(ADAPTER_CONFIG);
    if model_files::exists(&adapter) {
        return Err(ModelError::Adapter { path: adapter });
    }
    let config = ModelConfig::of_model(model, options.max_model_len)?;
    let is_dummy = options.load_format == LoadFormat::Dummy;
    let checkpoint = match (options.load_format, &config.quantization) {
        (LoadFormat::Auto, quantization) => {
            Checkpoint::open(model)?.quantized(quantization.clone())
        }
        (LoadFormat::Dummy, None) => {
            Checkpoint::dummy(model, config.dtype.unwrap_or(StoredDtype::Bf16))
        }
        (LoadFormat::Dummy, Some(quantization)) => {
            return Err(ModelError::DummyQuantized { format: quantization.to_string() });
        }
    };
    tracing::debug!(format = checkpoint.format(), "reading weights");
    if options.quantization.is_some() && checkpoint.has_quantized_weights() {
        return Err(ModelError::AlreadyQuantized { format: checkpoint.format() });
    }
    inventory::check(&config, &checkpoint)?;
    let dtype = weight_dtype(options.dtype, stored_dtype(&config, &checkpoint)?, &options.device);
    // Weights of other devices are not in memory that a file could be mapped to.
    let is_cached = options.device == Device::flex() && !is_dummy;
    let cache = options.weights_cache.as_deref().filter(|_| is_cached);
    let quantized = quantized_weights(&checkpoint, dtype, options)?;
    let form = form(dtype, options.quantization, config.quantization.as_ref(), quantized.as_ref());
    let cache = cache.map(|folder| WeightsCache::open(folder, &checkpoint, &form));
    let mut loader = WeightLoader::new(&checkpoint, dtype, options, quantized, cache, progress);
    let model = decoder::load(config, &mut loader)?;
    checkpoint.require_unchanged()?;
    loader.finish();
    Ok(Arc::new(model))
}

/// What the model's quantized weights are, and what they are multiplied by.
///
/// # Errors
/// As [`ActivationQuantization::resolve`], or activations that are to be quantized beside weights that
/// are not.
fn quantized_weights(
    checkpoint: &Checkpoint,
    dtype: WeightDtype,
    options: &LoadOptions,
) -> Result<Option<QuantizedWeights>, ModelError> {
    let format = match options.quantization {
        Some(QuantizationScheme::Int8) => "int8".to_owned(),
        Some(QuantizationScheme::Int4 { group_size }) => format!("int4 of {group_size}"),
        None if !checkpoint.has_quantized_weights() => {
            if options.activation_quantization == ActivationQuantization::Int8 {
                let (why, accepted) = ("no weights are quantized", ", or a quantization");
                return Err(ModelError::ActivationQuantization { why, accepted });
            }
            return Ok(None);
        }
        None => checkpoint.format(),
    };
    let activations = options.activation_quantization.resolve(Circumstances {
        at_load: options.quantization.is_some(),
        requested: options.dtype,
        dtype,
        is_on_cpu: options.device == Device::flex(),
    })?;
    Ok(Some(QuantizedWeights { format, activations }))
}

/// What `config.json` says the weights are; where it does not say, what the embedding is.
fn stored_dtype(config: &ModelConfig, checkpoint: &Checkpoint) -> Result<StoredDtype, ModelError> {
    let embedding = config.family.names.embed_tokens;
    match config.dtype {
        // Beside weights of few bits, the three bits that float16 has more do not matter.
        _ if config.quantization.is_some() || checkpoint.is_quantized(embedding) => {
            Ok(config.dtype.filter(|dtype| *dtype == StoredDtype::F32).unwrap_or(StoredDtype::Bf16))
        }
        Some(dtype) => Ok(dtype),
        None => {
            let name = format!("{embedding}.weight");
            let shape = [config.vocab_size, config.hidden_size];
            Ok(checkpoint.tensor(&name, &shape)?.dtype())
        }
    }
}

/// The form that weights are kept in, as the name of their cache tells it, and what they are read
/// as: `config.json` and this program may change beside files that do not.
fn form(
    dtype: WeightDtype,
    scheme: Option<QuantizationScheme>,
    stored: Option<&Quantization>,
    quantized: Option<&QuantizedWeights>,
) -> String {
    let dtype = dtype.name();
    let kept = match scheme {
        None => dtype.to_owned(),
        Some(QuantizationScheme::Int8) => format!("{dtype}-int8"),
        Some(QuantizationScheme::Int4 { group_size }) => format!("{dtype}-int4-{group_size}"),
    };
    // Scales are kept as activations need them.
    let by = |quantized: &QuantizedWeights| format!(" by {}", quantized.activations.name());
    let activations = quantized.map_or_else(String::new, by);
    format!("{kept}{activations}, read as {stored:?} by {READER_VERSION}")
}

fn weight_dtype(requested: Dtype, stored: StoredDtype, device: &Device) -> WeightDtype {
    match (requested, stored) {
        (Dtype::Float32, _) | (Dtype::Auto, StoredDtype::F32) => WeightDtype::F32,
        (Dtype::Bfloat16, _) | (Dtype::Auto, StoredDtype::Bf16) => WeightDtype::Bf16,
        (Dtype::Float16, _) => WeightDtype::F16,
        (Dtype::Auto, StoredDtype::F16) if *device != Device::flex() => WeightDtype::F16,
        (Dtype::Auto, StoredDtype::F16) => {
            tracing::info!("a float16 checkpoint is computed in float32");
            WeightDtype::F32
        }
    }
}

/// Hands the tensors of a checkpoint to the layers that are being built, and counts them.
pub(super) struct WeightLoader<'a> {
    checkpoint: &'a Checkpoint,
    dtype: WeightDtype,
    quantization: Option<QuantizationScheme>,
    quantized: Option<QuantizedWeights>,
    device: &'a Device,
    tensor_cores: TensorCores,
    cache: Option<WeightsCache>,
    report: &'a mut dyn FnMut(LoadProgress),
    progress: LoadProgress,
}

impl<'a> WeightLoader<'a> {
    fn new(
        checkpoint: &'a Checkpoint,
        dtype: WeightDtype,
        options: &'a LoadOptions,
        quantized: Option<QuantizedWeights>,
        cache: Option<WeightsCache>,
        report: &'a mut dyn FnMut(LoadProgress),
    ) -> Self {
        let progress = LoadProgress {
            tensors_total: checkpoint.tensor_count(),
            bytes_total: checkpoint.size_bytes(),
            is_cached: cache.as_ref().is_some_and(WeightsCache::is_read),
            ..LoadProgress::default()
        };
        report(progress);
        let LoadOptions { quantization, ref device, tensor_cores, .. } = *options;
        Self {
            checkpoint,
            dtype,
            quantization,
            quantized,
            device,
            tensor_cores,
            cache,
            report,
            progress,
        }
    }

    pub(super) fn dtype(&self) -> WeightDtype {
        self.dtype
    }

    /// How linear layers are quantized.
    pub(super) fn quantization(&self) -> Option<QuantizationScheme> {
        self.quantization
    }

    /// What quantized weights the model has.
    pub(super) fn quantized_weights(&self) -> Option<&QuantizedWeights> {
        self.quantized.as_ref()
    }

    /// What activations are when they meet quantized weights.
    pub(super) fn activations(&self) -> ActivationDtype {
        let quantized = self.quantized.as_ref();
        quantized.map_or(self.dtype.into(), |quantized| quantized.activations)
    }

    pub(super) fn device(&self) -> &'a Device {
        self.device
    }

    pub(super) fn tensor_cores(&self) -> TensorCores {
        self.tensor_cores
    }

    /// The tensor `name`, which must have the shape `expected`.
    pub(super) fn tensor(
        &self,
        name: &str,
        expected: &[usize],
    ) -> Result<StoredTensor<'a>, ModelError> {
        Ok(self.checkpoint.tensor(name, expected)?)
    }

    /// The weight `[out, in]` of `module`, which may be quantized.
    pub(super) fn matrix(
        &self,
        module: &str,
        shape: [usize; 2],
    ) -> Result<StoredMatrix<'a>, ModelError> {
        Ok(self.checkpoint.matrix(module, shape)?)
    }

    /// A vector of f32: a bias, or the weight of a norm.
    pub(super) fn vector(&mut self, parts: &[(String, usize)]) -> Result<WeightVector, ModelError> {
        let mut values = Vec::new();
        for (name, length) in parts {
            let tensor = self.tensor(name, &[*length])?;
            values.extend(tensor.values().view().to_f32());
            self.loaded(&tensor);
        }
        let name = parts.first().map_or("", |(name, _)| name);
        WeightVector::new(values, self.device).map_err(refused(name))
    }

    /// The weight `name`, `[outputs, inputs]`, from the cache, or else as `pack` makes it.
    pub(super) fn packed(
        &mut self,
        name: &str,
        shape: [usize; 2],
        pack: impl FnOnce(&mut Self) -> Result<LinearWeight, ModelError>,
    ) -> Result<LinearWeight, ModelError> {
        let cached = self.cache.as_mut().and_then(|cache| cache.get(name, shape));
        let weight = match cached {
            Some(weight) => weight,
            None => {
                self.progress.is_cached = false;
                let weight = pack(self)?;
                if let Some(cache) = &mut self.cache {
                    cache.keep(name, &weight);
                }
                weight
            }
        };
        Ok(weight.with_activations(self.activations()))
    }

    /// Counts a tensor as packed; it will not be read again.
    pub(super) fn loaded(&mut self, tensor: &StoredTensor<'_>) {
        self.checkpoint.release(tensor);
        self.count(1, tensor.size_bytes() as u64);
    }

    /// Whether matrices that are computed as one may be quantized in part. GGUF files mix formats, as
    /// llama.cpp does; elsewhere a list of exceptions is at fault, which vLLM refuses as well.
    pub(super) fn may_mix(&self) -> bool {
        self.checkpoint.is_gguf()
    }

    /// Says that a matrix will not be read again.
    pub(super) fn release(&self, matrix: &StoredMatrix<'_>) {
        if let MatrixElements::Dense(tensor) = &matrix.elements {
            self.checkpoint.release(tensor);
        }
    }

    /// Counts tensors as packed, and their bytes in the checkpoint.
    pub(super) fn count(&mut self, tensors: usize, bytes: u64) {
        self.progress.tensors += tensors;
        self.progress.bytes += bytes;
        (self.report)(self.progress);
    }

    fn finish(self) {
        if let Some(cache) = self.cache {
            cache.finish();
        }
        // Weights that are made up were not known beforehand.
        let LoadProgress { tensors, tensors_total, bytes, bytes_total, .. } = self.progress;
        let (tensors, bytes) = (tensors.max(tensors_total), bytes.max(bytes_total));
        (self.report)(LoadProgress { tensors, bytes, ..self.progress });
    }
}

/// For `map_err`: says which part the kernels refused.
pub(super) fn refused(part: &str) -> impl FnOnce(KernelError) -> ModelError {
    let part = part.to_owned();
    move |source| ModelError::Device { part, source }
}

#[cfg(test)]
#[path = "load_cache_tests.rs"]
mod cache_tests;
