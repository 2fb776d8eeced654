//! Loading a model folder.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use burn::tensor::Device;
use playhouse_kernels::{QuantizationScheme, TensorCores};

use super::{
    Model, ModelError, ModelRegistry, ModelSource,
    config::{ConfigSource, architecture},
};
use crate::{
    config::{ActivationQuantization, Dtype, LoadFormat},
    model_files,
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
    /// The families that a model may be of.
    pub families: ModelRegistry,
}

impl Default for LoadOptions {
    /// The checkpoint's types and context, on the CPU, without a cache, of a family of this crate.
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
            families: ModelRegistry::default(),
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
    let config = ConfigSource::read(model)?;
    let families = &options.families;
    let name = architecture(config.fields(), &Vec::from_iter(families.architectures()))?;
    let family = families.get(name).ok_or_else(|| {
        let supported = Vec::from_iter(families.architectures()).join(", ");
        config.fields().unsupported_family("architectures", &supported)
    })?;
    let model = family.load(&mut ModelSource { model, config: &config, options, progress })?;
    model.check_facts()?;
    Ok(Arc::new(model))
}

#[cfg(test)]
#[path = "load_cache_tests.rs"]
mod cache_tests;
