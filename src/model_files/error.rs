//! Faults of a model's file, whatever its format.

use std::{
    io,
    path::{Path, PathBuf},
};

/// A file of a model that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ModelFileError {
    /// The operating system refused the file.
    #[error("{}: cannot be read: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file, or its header, is malformed.
    #[error("{}: not a valid {format}: {reason}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The format that it should have.
        format: &'static str,
        /// The fault.
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
        /// The first truncated tensor.
        tensor: String,
        /// The end of that tensor, in bytes from the start of the file.
        expected_bytes: u64,
        /// The size of the file in bytes.
        actual_bytes: u64,
    },
}

impl ModelFileError {
    /// For `map_err`: returns an error that names the file that could not be read.
    pub(crate) fn read(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Read { path, source }
    }

    /// For `map_err`: returns an error that names the file that is not a `format`.
    pub(crate) fn invalid(path: &Path, format: &'static str) -> impl Fn(String) -> Self {
        let path = path.to_owned();
        move |reason| Self::Invalid { path: path.clone(), format, reason }
    }
}
