//! What can be wrong with a GGUF file, told to the operator.

use std::io;
use std::path::PathBuf;

/// A GGUF file that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum GgufError {
    /// The operating system refused the file.
    #[error("{}: cannot be read: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The header makes no sense.
    #[error("{}: not a valid GGUF file: {reason}", path.display())]
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
    /// A key that is needed is absent.
    #[error("{}: metadata `{key}` is missing; expected {expected}", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
        /// What would be accepted.
        expected: String,
    },
    /// A key has a value that is malformed or not supported.
    #[error("{}: metadata `{key}` is {found}; expected {expected}", path.display())]
    Metadata {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
        /// Its value, shortened.
        found: String,
        /// What would be accepted.
        expected: String,
    },
}
