//! The source of a model that a family builds: config, weights, and the options of the load.

use std::path::Path;

use burn::tensor::Device;
use playhouse_kernels::{QuantizationScheme, WeightDtype};
use serde_json::{Map, Value};

use super::{
    LoadOptions, LoadProgress, ModelError, QuantizedWeights, WeightLoader,
    activations::Circumstances,
    config::{ConfigError, ConfigSource, Fields, within_limit},
};
use crate::{
    config::{ActivationQuantization, Dtype, LoadFormat},
    weights::{
        Checkpoint, GgufName, MergedAdapter, Quantization, READER_VERSION, StoredDtype,
        TaskAdapters, UnitVectors, WeightsCache,
    },
};

/// The files and options of a model that a [`ModelFamily`](super::ModelFamily) loads.
pub struct ModelSource<'a> {
    pub(super) model: &'a Path,
    pub(super) config: &'a ConfigSource,
    pub(super) options: &'a LoadOptions,
    pub(super) progress: &'a mut dyn FnMut(LoadProgress),
}

impl ModelSource<'_> {
    /// Returns the model's folder, or its GGUF file.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.model
    }

    /// Returns the fields of `config.json`. The metadata of a GGUF file has the same form.
    #[must_use]
    pub fn config(&self) -> &Map<String, Value> {
        self.config.fields().object()
    }

    /// Returns the fields of `config.json`, whose errors name a field and its value.
    pub(super) fn fields(&self) -> &Fields {
        self.config.fields()
    }

    /// Returns a field of `config.json` that must be an integer from 1 to 2²⁴.
    ///
    /// # Errors
    /// [`ConfigError::Missing`] and [`ConfigError::Invalid`] name the file, the field and its
    /// value.
    pub fn size(&self, field: &str) -> Result<usize, ConfigError> {
        self.config.fields().required_size(field)
    }

    /// Returns the longest context to serve, in tokens: the setting `max_model_len`, or by default
    /// `limit`, the longest that the model can compute.
    ///
    /// # Errors
    /// [`ConfigError::MaxModelLen`] if the setting asks for more than `limit`, and
    /// [`ConfigError::Positions`] if it asks for more than is ever served.
    pub fn max_model_len(&self, limit: usize) -> Result<usize, ConfigError> {
        within_limit(self.config.fields(), limit, self.options.max_model_len)
    }

    /// Returns the device that the model will run on.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.options.device
    }

    /// Opens the weights, calls `build` with them, and checks that no file changed meanwhile.
    /// `stored` is the type that the weights were made for. They are kept in it unless the setting
    /// `dtype` names another.
    ///
    /// # Errors
    /// [`ModelError`] of the files, of settings that do not fit them, and of `build`.
    pub fn load_weights<T>(
        &mut self,
        stored: StoredDtype,
        build: impl FnOnce(&mut WeightLoader<'_>) -> Result<T, ModelError>,
    ) -> Result<T, ModelError> {
        let check = |_: &Checkpoint| Ok(((), stored));
        self.load_checkpoint(Expected::dense(stored), check, |(), loader| build(loader))
    }

    /// Does the same for a checkpoint whose matrices may be quantized. `check` compares the
    /// checkpoint with the config. It returns the config for `build`, and the type that the weights
    /// were made for.
    pub(super) fn load_checkpoint<C, T>(
        &mut self,
        expected: Expected<'_>,
        check: impl FnOnce(&Checkpoint) -> Result<(C, StoredDtype), ModelError>,
        build: impl FnOnce(C, &mut WeightLoader<'_>) -> Result<T, ModelError>,
    ) -> Result<T, ModelError> {
        let options = self.options;
        let (quantization, merged) = (expected.quantization, expected.merged);
        let checkpoint = self.open(expected)?;
        tracing::debug!(format = checkpoint.format(), "reading weights");
        if options.quantization.is_some() && checkpoint.has_quantized_weights() {
            return Err(ModelError::AlreadyQuantized { format: checkpoint.format() });
        }
        let (config, stored) = check(&checkpoint)?;
        let dtype = weight_dtype(options.dtype, stored, &options.device);
        // A file can be mapped into the CPU's memory only.
        let is_dummy = options.load_format == LoadFormat::Dummy;
        let is_cached = options.device == Device::flex() && !is_dummy;
        let cache = options.weights_cache.as_deref().filter(|_| is_cached);
        let quantized = quantized_weights(&checkpoint, dtype, options)?;
        let mut form = form(dtype, options.quantization, quantization, quantized.as_ref());
        // Its rank and factor are in no file of the checkpoint.
        if let Some(MergedAdapter { rank, scale, .. }) = merged {
            form.push_str(&format!(", with an adapter of rank {rank} by {scale}"));
        }
        let file = self.config.fields().object();
        let cache = cache.map(|folder| WeightsCache::open(folder, &checkpoint, file, &form));
        let mut loader =
            WeightLoader::new(&checkpoint, dtype, options, quantized, cache, self.progress);
        let built = build(config, &mut loader)?;
        checkpoint.require_unchanged()?;
        loader.finish();
        Ok(built)
    }

    fn open(&self, expected: Expected<'_>) -> Result<Checkpoint, ModelError> {
        let Expected { quantization, dummy, base, renamed, gguf_name, .. } = expected;
        let Expected { task_adapters, may_be_wrapped, merged, unit_vectors, .. } = expected;
        match (self.options.load_format, quantization) {
            (LoadFormat::Auto, quantization) => {
                let checkpoint = Checkpoint::open(self.model)?.quantized(quantization.cloned());
                let checkpoint =
                    checkpoint.with_task_adapters(task_adapters).with_gguf_names(gguf_name);
                let checkpoint = checkpoint.with_wrapped_layers(may_be_wrapped).merging(merged)?;
                let checkpoint = checkpoint.with_unit_vectors(unit_vectors)?;
                Ok(checkpoint.of_base_model(base).renamed(renamed))
            }
            (LoadFormat::Dummy, None) => Ok(Checkpoint::dummy(self.model, dummy)),
            (LoadFormat::Dummy, Some(quantization)) => {
                Err(ModelError::DummyQuantized { format: quantization.to_string() })
            }
        }
    }
}

/// The form of a checkpoint that a config describes.
pub(super) struct Expected<'a> {
    /// The format of quantized matrices, if `config.json` names one.
    pub(super) quantization: Option<&'a Quantization>,
    /// The type of dummy weights.
    pub(super) dummy: StoredDtype,
    /// The module that holds all but the output layer. A checkpoint of the base model alone has
    /// names without it: HF `base_model_prefix`.
    pub(super) base: &'static str,
    /// A part of the model's names, and the part that some checkpoints have in its place.
    pub(super) renamed: Option<(&'static str, &'static str)>,
    /// The names of its tensors in a GGUF file, if they differ from the model's.
    pub(super) gguf_name: Option<GgufName>,
    /// The adapters of tasks that its matrices have.
    pub(super) task_adapters: Option<TaskAdapters>,
    /// Whether its layers may be those of PEFT, with adapters beside their weights.
    pub(super) may_be_wrapped: bool,
    /// The adapter that is added to its matrices.
    pub(super) merged: Option<&'a MergedAdapter>,
    /// The module of the matrix whose columns or rows are divided by their norms.
    pub(super) unit_vectors: Option<(&'static str, UnitVectors)>,
}

impl Expected<'_> {
    /// Returns the form of a checkpoint without quantized matrices.
    pub(super) fn dense(dummy: StoredDtype) -> Self {
        Self {
            quantization: None,
            dummy,
            base: "",
            renamed: None,
            gguf_name: None,
            task_adapters: None,
            may_be_wrapped: false,
            merged: None,
            unit_vectors: None,
        }
    }
}

impl std::fmt::Debug for ModelSource<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ModelSource").field("model", &self.model).finish_non_exhaustive()
    }
}

/// Returns the format of the model's quantized weights, and the dtype of their activations.
///
/// # Errors
/// The errors of [`ActivationQuantization::resolve`]. [`ModelError::ActivationQuantization`] if
/// activations are to be quantized, but no weights are.
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

/// Returns the form of packed weights, for the identity of their cache. It includes the format that
/// they are read as, because `config.json` or this program may change while the files do not.
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
    // The form of the scales depends on the activations.
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
