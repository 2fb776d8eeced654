//! The identity of a cache: the files, config, format and layout that it was made from.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::UNIX_EPOCH;

use playhouse_kernels::packed_layout;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::weights::Checkpoint;

/// The version of [`crate::weights`]: increased when the same files yield other weights, so that
/// caches of older versions are packed again.
pub(crate) const READER_VERSION: u32 = 4;

/// Bytes of a file that are hashed: its header, and enough data to distinguish two checkpoints of
/// one shape.
const HEAD_BYTES: usize = 1 << 20;

/// Two caches with equal identities hold the same bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    files: Vec<FileIdentity>,
    /// SHA-256 of the config, which orders the rows of matrices.
    #[serde(default)]
    config: String,
    /// The format that weights are kept in, and the type that they are read as.
    format: String,
    /// [`packed_layout`]
    layout: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct FileIdentity {
    path: PathBuf,
    bytes: u64,
    /// Nanoseconds since 1970; negative before; 0 for a file that is part of the program.
    modified_ns: i128,
    /// SHA-256 of the file's beginning. For a file that is part of the program, SHA-256 of all of
    /// it.
    head: String,
}

impl Identity {
    /// Returns the identity of a checkpoint whose weights are arranged by `config` and kept as
    /// `format`. All of the config counts: a field that no matrix depends on today may matter to
    /// the next version, or to a family of another crate.
    ///
    /// # Errors
    /// The system's error when a file is examined.
    pub(crate) fn of(
        checkpoint: &Checkpoint,
        config: &Map<String, Value>,
        format: &str,
    ) -> io::Result<Self> {
        let files = checkpoint.files().map(|(path, contents)| {
            let bytes = contents.bytes();
            if contents.is_built_in() {
                // Only its bytes show that a program contains another model.
                let head = hex(&Sha256::digest(bytes));
                let (path, bytes) = (path.to_owned(), bytes.len() as u64);
                return Ok(FileIdentity { path, bytes, modified_ns: 0, head });
            }
            let metadata = fs::metadata(path)?;
            let modified_ns = match metadata.modified()?.duration_since(UNIX_EPOCH) {
                Ok(since) => since.as_nanos() as i128,
                Err(before) => -(before.duration().as_nanos() as i128),
            };
            let head = &bytes[..bytes.len().min(HEAD_BYTES)];
            Ok(FileIdentity {
                path: path.canonicalize()?,
                bytes: metadata.len(),
                modified_ns,
                head: hex(&Sha256::digest(head)),
            })
        });
        let files = files.collect::<io::Result<_>>()?;
        let config = hex(&Sha256::digest(serde_json::to_vec(config)?));
        Ok(Self { files, config, format: format.to_owned(), layout: packed_layout() })
    }

    /// Returns the name of the cache's file: that of the checkpoint's folder, and a digest of the
    /// properties that several caches may differ in. A checkpoint or config that changes in place
    /// keeps the name.
    pub(super) fn file_name(&self) -> String {
        let mut digest = Sha256::new();
        for text in [&self.format, &self.layout] {
            digest.update(text.as_bytes());
            digest.update([0]);
        }
        for file in &self.files {
            digest.update(file.path.as_os_str().as_encoded_bytes());
            digest.update([0]);
        }
        let folder = self.files.first().and_then(|file| file.path.parent()?.file_name());
        let folder = folder.map_or("model".into(), |name| name.to_string_lossy());
        format!("{folder}-{}.packed", &hex(&digest.finalize())[..16])
    }
}

/// Returns the digits in lower case.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
