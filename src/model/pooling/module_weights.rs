//! The tensors of a module of sentence-transformers: a checkpoint, or the file of `torch.save` that
//! older folders have.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use crate::{
    model_files::{self, ModelFileError},
    torch_file::{self, Elements, FileTensor},
    weights::{Checkpoint, WeightsError},
};

/// The file of older folders.
const OF_TORCH: &str = "pytorch_model.bin";
const FORMAT: &str = "file of torch.save";
/// The files of a checkpoint, which have precedence.
const OF_CHECKPOINT: [&str; 2] = ["model.safetensors", "model.safetensors.index.json"];

/// The tensors of a module's folder.
pub(super) enum ModuleWeights {
    Checkpoint(Box<Checkpoint>),
    Torch(TorchFile),
}

/// A file of `torch.save` with a dictionary of tensors.
pub(super) struct TorchFile {
    path: PathBuf,
    tensors: BTreeMap<String, FileTensor>,
}

impl ModuleWeights {
    /// Opens the tensors of a folder.
    pub(super) fn open(folder: &Path) -> Result<Self, WeightsError> {
        let exists = |name: &str| model_files::exists(&folder.join(name));
        match OF_CHECKPOINT.into_iter().any(exists) || !exists(OF_TORCH) {
            true => Ok(Self::Checkpoint(Box::new(Checkpoint::open(folder)?))),
            false => Ok(Self::Torch(TorchFile::read(&folder.join(OF_TORCH))?)),
        }
    }

    /// Returns the elements of the tensor `name`.
    pub(super) fn values(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, WeightsError> {
        match self {
            Self::Checkpoint(checkpoint) => {
                Ok(checkpoint.tensor(name, shape)?.values().view().to_f32())
            }
            Self::Torch(file) => file.values(name, shape),
        }
    }

    /// Returns the file that holds the tensor `name`.
    pub(super) fn path_of(&self, name: &str) -> &Path {
        match self {
            Self::Checkpoint(checkpoint) => checkpoint.path_of(name),
            Self::Torch(file) => &file.path,
        }
    }

    /// Refuses files that were changed while they were read.
    pub(super) fn require_unchanged(&self) -> Result<(), WeightsError> {
        match self {
            Self::Checkpoint(checkpoint) => checkpoint.require_unchanged(),
            Self::Torch(_) => Ok(()),
        }
    }
}

impl TorchFile {
    pub(super) fn read(path: &Path) -> Result<Self, WeightsError> {
        let file = model_files::read(path).map_err(ModelFileError::read(path))?;
        let tensors = torch_file::tensors(&file).map_err(ModelFileError::invalid(path, FORMAT))?;
        Ok(Self { path: path.to_owned(), tensors })
    }

    /// Returns the shape of the tensor `name`.
    pub(super) fn shape(&self, name: &str) -> Option<&[usize]> {
        self.tensors.get(name).map(|tensor| &*tensor.shape)
    }

    /// Returns the elements of the tensor `name`.
    pub(super) fn values(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, WeightsError> {
        let (path, tensor) = (self.path.clone(), name.to_owned());
        let Some(found) = self.tensors.get(name) else {
            return Err(WeightsError::MissingTensor { path, tensor, expected: shape.to_vec() });
        };
        if found.shape != shape {
            let (expected, actual) = (shape.to_vec(), found.shape.clone());
            let config = "config.json";
            return Err(WeightsError::Shape { path, tensor, config, expected, actual });
        }
        match &found.elements {
            Elements::Floats(values) => Ok(values.clone()),
            Elements::Ints(_) => {
                let reason = "integers; expected floats".to_owned();
                Err(WeightsError::Value { path, tensor, reason })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_without_safetensors_may_have_a_file_of_torch() {
        let folder = tempfile::TempDir::new().unwrap();
        let none = ModuleWeights::open(folder.path()).err().unwrap().to_string();
        assert!(none.contains("no weights found"), "{none}");
        let sample = concat!(env!("CARGO_MANIFEST_DIR"), "/src/torch_file/samples/linear.pt");
        std::fs::copy(sample, folder.path().join(OF_TORCH)).unwrap();
        let weights = ModuleWeights::open(folder.path()).unwrap();
        assert_eq!(weights.values("bias", &[2]).unwrap(), [0.5, -1.5]);
        assert!(weights.require_unchanged().is_ok());
        assert!(weights.path_of("bias").ends_with(OF_TORCH));
        for (name, shape, why) in [("other", &[2], "is missing"), ("bias", &[3], "has shape [2]")] {
            let error = weights.values(name, shape).unwrap_err().to_string();
            assert!(error.contains(why) && error.contains(OF_TORCH), "{error}");
        }
        std::fs::write(folder.path().join(OF_TORCH), "PK").unwrap();
        let broken = ModuleWeights::open(folder.path()).err().unwrap().to_string();
        assert!(broken.contains(FORMAT), "{broken}");
    }
}
