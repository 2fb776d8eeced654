//! Errors of a model, for the operator.

use std::path::PathBuf;

use playhouse_kernels::KernelError;

use super::config::ConfigError;
use crate::weights::WeightsError;

/// The reason why a model folder cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The configuration is missing, malformed, or not supported.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The weights are missing, damaged, or disagree with the configuration.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// The setting `quantization` is set, but the weights are quantized already.
    #[error("the weights are quantized already: {format}; load them without `quantization`")]
    AlreadyQuantized {
        /// The format of the checkpoint's weights.
        format: String,
    },
    /// The setting asks for quantized activations, which are not possible here.
    #[error("activation_quantization is int8, but {why}; expected auto or none{accepted}")]
    ActivationQuantization {
        /// The reason.
        why: &'static str,
        /// Other settings that would be accepted.
        accepted: &'static str,
    },
    /// Dummy weights are asked for, but the model's own weights are quantized.
    #[error(
        "load_format dummy makes no weights that are quantized already, and config.json asks for \
         {format}; remove its `quantization_config`, and set `quantization` instead"
    )]
    DummyQuantized {
        /// The format in `config.json`.
        format: String,
    },
    /// The folder holds an adapter, which is no model.
    #[error(
        "{}: an adapter is no model; serve its base model with --enable-lora and --lora-modules \
         NAME=PATH, or move the file out of the folder to serve the model in it",
        path.display()
    )]
    Adapter {
        /// Its configuration.
        path: PathBuf,
    },
    /// Of the matrices that are computed as one, some are quantized and some are not.
    #[error(
        "the weight of {quantized} is quantized and that of {plain} is not, and both are computed as \
         one: quantize both, or leave both out (`ignore`, `modules_to_not_convert`)"
    )]
    QuantizedInPart {
        /// A module that is quantized.
        quantized: String,
        /// A module that is not quantized.
        plain: String,
    },
    /// A matrix that the architecture stores as `[inputs, outputs]` is quantized.
    #[error(
        "the weight of {module} is quantized and stored as inputs by outputs, which is not \
         supported; use the weights before their quantization"
    )]
    QuantizedTransposed {
        /// The module of the matrix.
        module: String,
    },
    /// The device is a GPU, and GPUs have no kernels for some of the layers.
    #[error("layers with {mixers} run on CPUs only; start with --device cpu")]
    CpuOnly {
        /// The kinds of these layers' mixers.
        mixers: String,
    },
    /// A setting or a file asks for a head that the model cannot have.
    #[error("{setting}: {value} is not possible here: {why}")]
    Heads {
        /// The setting or the file.
        setting: &'static str,
        /// Its value.
        value: &'static str,
        /// The reason.
        why: &'static str,
    },
    /// A head that guesses tokens does not fit its method or the model.
    #[error("speculative_config: the head {}: {what}", path.display())]
    DraftHead {
        /// Its folder.
        path: PathBuf,
        /// The difference, with both values.
        what: String,
    },
    /// A family gives an invalid fact about its model.
    #[error("the model family of {architecture} gives {fact} = {value}; expected {accepted}")]
    Fact {
        /// The architecture of the model.
        architecture: String,
        /// The field of [`Model`](super::Model).
        fact: &'static str,
        /// Its value.
        value: usize,
        /// The accepted values.
        accepted: String,
    },
    /// A family cannot build its model, for a reason of its own.
    #[error(transparent)]
    Family(#[from] Box<dyn std::error::Error + Send + Sync>),
    /// The device rejects a part of the model, for example for lack of memory.
    #[error("{part}: {source}")]
    Device {
        /// The part, by its name in the checkpoint.
        part: String,
        /// The reason.
        source: KernelError,
    },
}
