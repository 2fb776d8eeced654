//! Loading a model folder.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use burn::tensor::Device;
use playhouse_kernels::{QuantizationScheme, TensorCores};
use serde::{Deserialize, Serialize};

use super::{
    Model, ModelError, ModelRegistry, ModelSource,
    audio::SoundTower,
    config::{ConfigSource, architecture, base_class},
};
use crate::{
    config::{
        ActivationQuantization, Convert, Dtype, JsonObject, LoadFormat, PoolerConfig, Runner,
    },
    model_files,
};

/// The file that peft writes into an adapter's folder. transformers would load the model that it
/// names and apply the adapter.
const ADAPTER_CONFIG: &str = "adapter_config.json";

/// The options of a load.
#[derive(Debug, Clone)]
pub struct LoadOptions {
    /// The source of the weights.
    pub load_format: LoadFormat,
    /// The type of the weights.
    pub dtype: Dtype,
    /// The quantization of linear layers at load. The output layer never has less than 8 bits.
    pub quantization: Option<QuantizationScheme>,
    /// The quantization of activations that are multiplied with quantized weights.
    pub activation_quantization: ActivationQuantization,
    /// A context shorter than the model's own, in tokens.
    pub max_model_len: Option<usize>,
    /// The device that the model will run on.
    pub device: Device,
    /// Whether products on the device may use tensor cores.
    pub tensor_cores: TensorCores,
    /// The folder where packed weights are stored, and mapped from at later loads.
    pub weights_cache: Option<PathBuf>,
    /// The work that the model is loaded for.
    pub runner: Runner,
    /// The pooler of the model.
    pub convert: Convert,
    /// How the pooler works.
    pub pooler: Option<PoolerConfig>,
    /// Fields that replace those of `config.json`.
    pub hf_overrides: Option<JsonObject>,
    /// The tokenizer's folder or file, if it is not in the model's folder.
    pub tokenizer: Option<PathBuf>,
    /// The families that a model may be of.
    pub families: ModelRegistry,
}

impl Default for LoadOptions {
    /// Returns options with the checkpoint's types and context, the CPU, no cache, and the families
    /// of this crate.
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
            runner: Runner::default(),
            convert: Convert::default(),
            pooler: None,
            hf_overrides: None,
            tokenizer: None,
            families: ModelRegistry::default(),
        }
    }
}

/// The progress of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LoadProgress {
    /// Tensors packed so far.
    pub tensors: usize,
    /// Tensors in the checkpoint; 0 for dummy weights.
    pub tensors_total: usize,
    /// Bytes of the checkpoint packed so far.
    pub bytes: u64,
    /// Size of the checkpoint.
    pub bytes_total: u64,
    /// Whether the weights come packed from a cache.
    pub is_cached: bool,
}

/// Loads `model`, a Hugging Face folder (`config.json` and safetensors files) or a GGUF file. It
/// maps the weights and packs each for the device. `progress` is called after each tensor. The last
/// call reports all tensors, also those that the model does not need.
///
/// # Errors
/// [`ModelError`] names the file and the field or tensor at fault.
pub fn load_model(
    model: &Path,
    options: &LoadOptions,
    progress: &mut dyn FnMut(LoadProgress),
) -> Result<Arc<Model>, ModelError> {
    let adapter = model.join(ADAPTER_CONFIG);
    if model_files::exists(&adapter) {
        if !may_hold_adapter(model) {
            return Err(ModelError::Adapter { path: adapter });
        }
        tracing::info!(
            "the folder has an adapter for prompts with sounds, which --lora-modules or \
             default_mm_loras loads"
        );
    }
    let mut config = ConfigSource::read(model)?;
    if let Some(overrides) = &options.hf_overrides {
        config.override_with(overrides);
    }
    let families = &options.families;
    let name = match architecture(config.fields(), &Vec::from_iter(families.architectures())) {
        Ok(name) => name,
        Err(error) => base_class(model, config.fields()).ok_or(error)?,
    };
    let family = families.get(name).ok_or_else(|| {
        let supported = Vec::from_iter(families.architectures());
        config.fields().unsupported_family("architectures", name, &supported)
    })?;
    let model = family.load(&mut ModelSource { model, config: &config, options, progress })?;
    model.check_facts()?;
    Ok(Arc::new(model))
}

/// Returns whether the folder `model` has a model whose class has an adapter of its own.
fn may_hold_adapter(model: &Path) -> bool {
    let Ok(config) = ConfigSource::read(model) else { return false };
    SoundTower::of(config.fields()) == Some(SoundTower::GraniteSpeech)
}

/// Returns whether the model in the folder `model` was trained with an adapter for prompts with
/// sounds: `has_lora_adapter` of HF `GraniteSpeechConfig`, which is true by default.
pub(crate) fn has_own_adapter(model: &Path) -> bool {
    const FLAG: &str = "has_lora_adapter";
    if !model.is_dir() {
        return false;
    }
    let Ok(config) = ConfigSource::read(model) else { return false };
    let fields = config.fields();
    let is_granite = SoundTower::of(fields) == Some(SoundTower::GraniteSpeech);
    is_granite && fields.flag_or(FLAG, true).unwrap_or(true)
}

#[cfg(test)]
#[path = "load_cache_tests.rs"]
mod cache_tests;

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::has_own_adapter;

    #[test]
    fn an_adapter_of_the_model_is_the_default_of_its_class() {
        for (fields, expected) in [
            (r#""architectures": ["GraniteSpeechForConditionalGeneration"]"#, true),
            (
                r#""architectures": ["GraniteSpeechForConditionalGeneration"],
                   "has_lora_adapter": false"#,
                false,
            ),
            (r#""architectures": ["LlamaForCausalLM"], "has_lora_adapter": true"#, false),
        ] {
            let folder = TempDir::new().unwrap();
            let config = format!(r#"{{ "model_type": "x", {fields} }}"#);
            std::fs::write(folder.path().join("config.json"), config).unwrap();
            assert_eq!(has_own_adapter(folder.path()), expected, "{fields}");
        }
        assert!(!has_own_adapter(std::path::Path::new("nowhere")));
    }
}
