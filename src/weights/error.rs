//! Faults of a checkpoint, for the operator.

use std::path::PathBuf;

use playhouse_kernels::KernelError;

use crate::gguf::GgufError;
use crate::model_files::ModelFileError;

/// A checkpoint that cannot be used. Each message names the file, the tensor if one is concerned,
/// and the accepted values.
#[derive(Debug, thiserror::Error)]
pub enum WeightsError {
    /// The folder holds no safetensors weights.
    #[error(
        "{}: no weights found; expected model.safetensors or model.safetensors.index.json \
         (PyTorch .bin files are not read)",
        folder.display()
    )]
    NoWeights {
        /// The model folder.
        folder: PathBuf,
    },
    /// A file is not a valid file of weights.
    #[error(transparent)]
    File(#[from] ModelFileError),
    /// A tensor that the engine does not use, although it would change the results.
    #[error("{}: tensor `{tensor}` is not used: {why}", path.display())]
    Unused {
        /// The file that holds it.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// The reason, and what to do.
        why: &'static str,
    },
    /// The file was written or truncated while the model was loaded.
    #[error(
        "{}: was changed while it was read; put new files in place by renaming, and start again",
        path.display()
    )]
    Changed {
        /// The file.
        path: PathBuf,
    },
    /// The index names a shard that does not exist.
    #[error(
        "{}: tensor `{tensor}` is in shard {shard}, which is not in the folder; copy or download \
         the missing file",
        path.display()
    )]
    MissingShard {
        /// The index file.
        path: PathBuf,
        /// The absent file's name.
        shard: String,
        /// A tensor that it should hold.
        tensor: String,
    },
    /// A tensor that the architecture needs is not in the checkpoint.
    #[error("{}: tensor `{tensor}` of shape {expected:?} is missing", path.display())]
    MissingTensor {
        /// The file that should hold it: the weights file, the shard, or the index.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// Its shape by `config.json`.
        expected: Vec<usize>,
    },
    /// A tensor has another shape than `config.json` gives it.
    #[error(
        "{}: tensor `{tensor}` has shape {actual:?}, but by {config} it should be {expected:?}",
        path.display()
    )]
    Shape {
        /// The file that holds it.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// The source of the expected shape: `config.json`, or the metadata of the file.
        config: &'static str,
        /// Its shape by that source.
        expected: Vec<usize>,
        /// Its shape in the file.
        actual: Vec<usize>,
    },
    /// A tensor has a type that the engine does not compute with.
    #[error(
        "{}: tensor `{tensor}` has dtype {dtype}; accepted here: {accepted}",
        path.display()
    )]
    Dtype {
        /// The file that holds it.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// Its dtype in the file.
        dtype: String,
        /// The dtypes that are read.
        accepted: &'static str,
    },
    /// The parts of a quantized matrix do not form one.
    #[error("{}: tensor `{tensor}`: {reason}", path.display())]
    Quantized {
        /// The file that holds it.
        path: PathBuf,
        /// The tensor at fault.
        tensor: String,
        /// The fault.
        reason: String,
    },
    /// A tensor has a number that has no meaning there.
    #[error("{}: tensor `{tensor}`: {reason}", path.display())]
    Value {
        /// The file that holds it.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// The number, and the accepted ones.
        reason: String,
    },
    /// The parts of a quantized matrix form none that the engine computes with.
    #[error("{}: module `{module}`: {source}", path.display())]
    Matrix {
        /// The file that holds it.
        path: PathBuf,
        /// The module whose weight it is.
        module: String,
        /// The reason.
        source: KernelError,
    },
    /// The file is GGUF, and its structure has a fault.
    #[error(transparent)]
    Gguf(#[from] GgufError),
}
