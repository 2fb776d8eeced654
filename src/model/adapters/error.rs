//! The reasons why an adapter cannot be used.

use std::path::PathBuf;

use playhouse_kernels::KernelError;

use crate::model_files::ModelFileError;
use crate::weights::WeightsError;

/// An adapter that cannot be used. Each message names the file, the field or the tensor, and what
/// is accepted.
#[derive(Debug, thiserror::Error)]
pub enum AdapterError {
    /// There is no adapter at the path.
    #[error("No adapter found for {path}")]
    NotFound {
        /// The path, as it was given.
        path: String,
    },
    /// A file is missing, unreadable or malformed.
    #[error(transparent)]
    File(#[from] ModelFileError),
    /// The file of weights is malformed, or a tensor has a type that is not read.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// The weights are in a pickled file, which may run any program when it is read.
    #[error(
        "{}: pickled weights are never read; save the adapter with `safe_serialization=True`, as \
         adapter_model.safetensors",
        path.display()
    )]
    Pickled {
        /// The file.
        path: PathBuf,
    },
    /// The weights are in the file of another program, which has other names and exchanges axes.
    #[error(
        "{}: adapters of MLX are not read; convert the adapter to PEFT's adapter_model.safetensors",
        path.display()
    )]
    Mlx {
        /// The file.
        path: PathBuf,
    },
    /// A field of `adapter_config.json` asks for something that is not supported.
    #[error("{}: {field} = {value} is not supported; accepted: {accepted}", path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// The field.
        field: &'static str,
        /// Its value.
        value: String,
        /// The accepted values.
        accepted: &'static str,
    },
    /// The rank exceeds the limit of the engine.
    #[error("LoRA rank {rank} is greater than max_lora_rank {max_rank}.")]
    Rank {
        /// The adapter's largest rank.
        rank: usize,
        /// The limit.
        max_rank: usize,
    },
    /// A tensor changes a module that takes no adapter here.
    #[error("{}: tensor `{tensor}`: {why}", path.display())]
    Module {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// The reason.
        why: String,
    },
    /// A tensor does not fit the base model, or the rank in the adapter's config.
    #[error(
        "{}: tensor `{tensor}` has shape {actual:?}, but the base model and adapter_config.json \
         need {expected:?}; the adapter may belong to another base model",
        path.display()
    )]
    Shape {
        /// The file.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// Its shape in the file.
        actual: Vec<usize>,
        /// The shape that fits.
        expected: Vec<usize>,
    },
    /// The files are no longer those that were registered under this name.
    #[error(
        "the files of adapter '{name}' in {path} changed after it was loaded; load it again with \
         `load_inplace`"
    )]
    Changed {
        /// The adapter's name.
        name: String,
        /// Its folder, as it was given.
        path: String,
    },
    /// The model has no layers that take adapters.
    #[error("the model takes no adapters: {why}")]
    NoSites {
        /// The reason.
        why: &'static str,
    },
    /// The device rejects a part of the adapter, for example for lack of memory.
    #[error("{part}: {source}")]
    Device {
        /// The part.
        part: String,
        /// The reason.
        source: KernelError,
    },
}
