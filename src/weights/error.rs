//! What can be wrong with a checkpoint, told to the operator.

use std::io;
use std::path::PathBuf;

/// A checkpoint that cannot be used. Each message names the file, the tensor if one is concerned, and
/// what would have been accepted.
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
    /// The operating system refused a file.
    #[error("{}: cannot be read: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The header of a safetensors file makes no sense.
    #[error("{}: not a valid safetensors file: {reason}", path.display())]
    Header {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The file ends before the data that its header announces.
    #[error(
        "{}: truncated: tensor `{tensor}` ends at byte {expected_bytes}, but the file has \
         {actual_bytes} bytes; copy or download it again",
        path.display()
    )]
    Truncated {
        /// The file.
        path: PathBuf,
        /// The first tensor that is cut.
        tensor: String,
        /// Where that tensor ends, in bytes from the start of the file.
        expected_bytes: u64,
        /// The size of the file in bytes.
        actual_bytes: u64,
    },
    /// The index file makes no sense.
    #[error("{}: not a valid safetensors index: {reason}", path.display())]
    Index {
        /// The index file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The index names a shard that is not there.
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
        "{}: tensor `{tensor}` has shape {actual:?}, but by config.json it should be {expected:?}",
        path.display()
    )]
    Shape {
        /// The file that holds it.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// Its shape by `config.json`.
        expected: Vec<usize>,
        /// Its shape in the file.
        actual: Vec<usize>,
    },
    /// A tensor has a type that the engine does not compute with.
    #[error(
        "{}: tensor `{tensor}` has dtype {dtype}; accepted are F32, F16 and BF16",
        path.display()
    )]
    Dtype {
        /// The file that holds it.
        path: PathBuf,
        /// The tensor.
        tensor: String,
        /// Its dtype in the file.
        dtype: String,
    },
}
