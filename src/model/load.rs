//! Loading a model folder.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use burn::tensor::{Device, Tensor, TensorData};
use playhouse_kernels::{KernelError, LinearWeight, WeightDtype};

use super::config::ModelConfig;
use super::decoder::Decoder;
use super::{CausalLm, ModelError};
use crate::weights::{Checkpoint, StoredDtype, StoredTensor, WeightsCache};

/// The type in which weights are kept and streamed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Dtype {
    /// The checkpoint's: bfloat16 and float32 stay; float16, which would lose three bits in
    /// bfloat16, is widened to float32.
    #[default]
    Auto,
    /// 32-bit floats.
    F32,
    /// bfloat16.
    Bf16,
}

/// How to load a model.
#[derive(Debug, Clone)]
pub struct LoadOptions {
    /// The type of the weights.
    pub dtype: Dtype,
    /// A context shorter than the model's own, in tokens.
    pub max_model_len: Option<usize>,
    /// Where the model will run.
    pub device: Device,
    /// Folder to keep packed weights in, and to map them from.
    pub weights_cache: Option<PathBuf>,
}

impl Default for LoadOptions {
    /// The checkpoint's types and context, on the CPU, without a cache.
    fn default() -> Self {
        let (dtype, device) = (Dtype::default(), Device::flex());
        Self { dtype, max_model_len: None, device, weights_cache: None }
    }
}

/// How far loading has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LoadProgress {
    /// Tensors packed so far.
    pub tensors: usize,
    /// Tensors in the checkpoint.
    pub tensors_total: usize,
    /// Bytes of the checkpoint packed so far.
    pub bytes: u64,
    /// Size of the checkpoint.
    pub bytes_total: u64,
    /// Whether they come packed from a cache.
    pub is_cached: bool,
}

/// Loads the model of `folder`: reads `config.json`, maps the safetensors files, and packs every
/// weight for the device. `progress` is called after each tensor, and at the end with everything
/// done, also where the checkpoint holds tensors that the model does not need.
///
/// # Errors
/// [`ModelError`], naming the file and the field or tensor at fault.
pub fn load_model(
    folder: &Path,
    options: &LoadOptions,
    progress: &mut dyn FnMut(LoadProgress),
) -> Result<Arc<dyn CausalLm>, ModelError> {
    let config = ModelConfig::from_dir(folder, options.max_model_len)?;
    let checkpoint = Checkpoint::open(folder)?;
    let dtype = weight_dtype(options.dtype, stored_dtype(&config, &checkpoint)?);
    let cache = options.weights_cache.as_deref();
    let cache = cache.map(|folder| WeightsCache::open(folder, &checkpoint, dtype.name()));
    let mut loader = WeightLoader::new(&checkpoint, dtype, &options.device, cache, progress);
    let model = Decoder::load(config, &mut loader)?;
    loader.finish();
    Ok(Arc::new(model))
}

/// What `config.json` says the weights are; where it does not say, what the embedding is.
fn stored_dtype(config: &ModelConfig, checkpoint: &Checkpoint) -> Result<StoredDtype, ModelError> {
    match config.dtype {
        Some(dtype) => Ok(dtype),
        None => {
            let name = format!("{}.weight", config.family.names.embed_tokens);
            let shape = [config.vocab_size, config.hidden_size];
            Ok(checkpoint.tensor(&name, &shape)?.dtype())
        }
    }
}

fn weight_dtype(requested: Dtype, stored: StoredDtype) -> WeightDtype {
    match (requested, stored) {
        (Dtype::F32, _) | (Dtype::Auto, StoredDtype::F32) => WeightDtype::F32,
        (Dtype::Bf16, _) | (Dtype::Auto, StoredDtype::Bf16) => WeightDtype::Bf16,
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
    device: &'a Device,
    cache: Option<WeightsCache>,
    report: &'a mut dyn FnMut(LoadProgress),
    progress: LoadProgress,
}

impl<'a> WeightLoader<'a> {
    fn new(
        checkpoint: &'a Checkpoint,
        dtype: WeightDtype,
        device: &'a Device,
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
        Self { checkpoint, dtype, device, cache, report, progress }
    }

    pub(super) fn dtype(&self) -> WeightDtype {
        self.dtype
    }

    pub(super) fn device(&self) -> &'a Device {
        self.device
    }

    /// The tensor `name`, which must have the shape `expected`.
    pub(super) fn tensor(
        &self,
        name: &str,
        expected: &[usize],
    ) -> Result<StoredTensor<'a>, ModelError> {
        Ok(self.checkpoint.tensor(name, expected)?)
    }

    /// A vector of f32: a bias, or the weight of a norm.
    pub(super) fn vector(&mut self, parts: &[(String, usize)]) -> Result<Tensor<1>, ModelError> {
        let mut values = Vec::new();
        for (name, length) in parts {
            let tensor = self.tensor(name, &[*length])?;
            values.extend(tensor.values().view().to_f32());
            self.loaded(&tensor);
        }
        let shape = [values.len()];
        Ok(Tensor::from_data(TensorData::new(values, shape), self.device))
    }

    /// The weight `name`, `[outputs, inputs]`, from the cache, or else as `pack` makes it.
    pub(super) fn packed(
        &mut self,
        name: &str,
        shape: [usize; 2],
        pack: impl FnOnce(&Self) -> Result<LinearWeight, ModelError>,
    ) -> Result<LinearWeight, ModelError> {
        let cached = self.cache.as_mut().and_then(|cache| cache.get(name, shape));
        if let Some(weight) = cached {
            return Ok(weight);
        }
        self.progress.is_cached = false;
        let weight = pack(self)?;
        if let Some(cache) = &mut self.cache {
            cache.keep(name, &weight);
        }
        Ok(weight)
    }

    /// Counts a tensor as packed; it will not be read again.
    pub(super) fn loaded(&mut self, tensor: &StoredTensor<'_>) {
        self.checkpoint.release(tensor);
        self.progress.tensors += 1;
        self.progress.bytes += tensor.size_bytes() as u64;
        (self.report)(self.progress);
    }

    fn finish(self) {
        if let Some(cache) = self.cache {
            cache.finish();
        }
        let LoadProgress { tensors_total, bytes_total, .. } = self.progress;
        (self.report)(LoadProgress { tensors: tensors_total, bytes: bytes_total, ..self.progress });
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
