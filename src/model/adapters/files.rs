//! The files of an adapter, as bytes. They are read at once, because an operator may replace them
//! while the engine runs.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::AdapterError;
use crate::model_files::{self, ModelFileError};

const CONFIG: &str = "adapter_config.json";
const WEIGHTS: &str = "adapter_model.safetensors";
const PICKLED: &str = "adapter_model.bin";
/// The weights of mlx-lm's adapters.
const MLX: &str = "adapters.safetensors";

/// Names the content of an adapter's files: SHA-256 of the config, then of the weights.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint(pub [u8; 32]);

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// The content of an adapter's folder.
#[derive(Debug)]
pub struct AdapterFiles {
    pub(super) config_path: PathBuf,
    pub(super) config: Vec<u8>,
    pub(super) weights_path: PathBuf,
    pub(super) weights: Vec<u8>,
}

impl AdapterFiles {
    /// Reads the folder `path`: `adapter_config.json` and `adapter_model.safetensors`.
    ///
    /// # Errors
    /// [`AdapterError::NotFound`] if there is no config, [`AdapterError::Pickled`] if the weights
    /// are in a pickled file alone, [`AdapterError::Mlx`] if they are MLX's, and
    /// [`AdapterError::File`].
    pub fn read(path: &str) -> Result<Self, AdapterError> {
        let folder = Path::new(path);
        let (config_path, weights_path) = (folder.join(CONFIG), folder.join(WEIGHTS));
        let config = match model_files::read(&config_path) {
            Ok(config) => config.into_owned(),
            Err(error) if is_absent(&error) => {
                return Err(AdapterError::NotFound { path: path.to_owned() });
            }
            Err(error) => return Err(ModelFileError::read(&config_path)(error).into()),
        };
        let weights = match model_files::read(&weights_path) {
            Ok(weights) => weights.into_owned(),
            Err(error) if is_absent(&error) && model_files::exists(&folder.join(PICKLED)) => {
                return Err(AdapterError::Pickled { path: folder.join(PICKLED) });
            }
            Err(error) if is_absent(&error) && model_files::exists(&folder.join(MLX)) => {
                return Err(AdapterError::Mlx { path: folder.join(MLX) });
            }
            Err(error) => return Err(ModelFileError::read(&weights_path)(error).into()),
        };
        Ok(Self { config_path, config, weights_path, weights })
    }

    /// Returns the name of the content.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        let of_parts = [&self.config, &self.weights].map(Sha256::digest);
        Fingerprint(Sha256::digest(of_parts.concat()).into())
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}
