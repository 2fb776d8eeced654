//! Why a model cannot be served, told to the operator.

use std::path::PathBuf;

use playhouse_kernels::KernelError;

use super::config::ConfigError;
use crate::weights::WeightsError;

/// A model folder that cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    /// The configuration is missing, malformed, or not supported.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The weights are missing, damaged, or disagree with the configuration.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// Weights were to be quantized at load that are quantized already.
    #[error("the weights are quantized already: {format}; load them without `quantization`")]
    AlreadyQuantized {
        /// What the checkpoint holds.
        format: String,
    },
    /// Activations were to be quantized where they cannot be.
    #[error("activation_quantization is int8, but {why}; expected auto or none{accepted}")]
    ActivationQuantization {
        /// Why not.
        why: &'static str,
        /// What else would do.
        accepted: &'static str,
    },
    /// Weights are to be made up for a model whose own are quantized.
    #[error(
        "load_format dummy makes no weights that are quantized already, and config.json asks for \
         {format}; remove its `quantization_config`, and set `quantization` instead"
    )]
    DummyQuantized {
        /// What `config.json` asks for.
        format: String,
    },
    /// The folder holds an adapter, which is not applied.
    #[error(
        "{}: adapters are not supported; merge this one into its model (`merge_and_unload` of \
         peft), or move the file out of the folder to serve the model without it",
        path.display()
    )]
    Adapter {
        /// Its configuration.
        path: PathBuf,
    },
    /// Some of the matrices that are computed as one are quantized, and some are not.
    #[error(
        "the weight of {quantized} is quantized and that of {plain} is not, and both are computed as \
         one: quantize both, or leave both out (`ignore`, `modules_to_not_convert`)"
    )]
    QuantizedInPart {
        /// A module that is quantized.
        quantized: String,
        /// One that is not.
        plain: String,
    },
    /// A family says of its model what cannot be.
    #[error("the model family of {architecture} gives {fact} = {value}; expected {accepted}")]
    Fact {
        /// The architecture of the model.
        architecture: String,
        /// The field of [`Model`](super::Model).
        fact: &'static str,
        /// Its value.
        value: usize,
        /// What would be accepted.
        accepted: String,
    },
    /// A family cannot build its model, for a reason of its own.
    #[error(transparent)]
    Family(#[from] Box<dyn std::error::Error + Send + Sync>),
    /// The device cannot take something that is built from the folder.
    #[error("{part}: {source}")]
    Device {
        /// What was being built, by its name in the checkpoint.
        part: String,
        /// Why.
        source: KernelError,
    },
}
