//! All files of a checkpoint as one set of named tensors.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use playhouse_kernels::MappedFile;
use serde::Deserialize;

use super::header::{self, Entry};
use super::{StoredDtype, StoredTensor, WeightsError};

const SINGLE_FILE: &str = "model.safetensors";
const INDEX_FILE: &str = "model.safetensors.index.json";

/// The weights of a model folder, mapped into memory.
#[derive(Debug)]
pub struct Checkpoint {
    files: Vec<WeightsFile>,
    /// Which of `files` holds a tensor.
    file_of: BTreeMap<String, usize>,
    /// The file to name when a tensor is in none.
    root: PathBuf,
}

#[derive(Debug)]
struct WeightsFile {
    path: PathBuf,
    map: MappedFile,
    entries: BTreeMap<String, Entry>,
}

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

impl Checkpoint {
    /// Opens `model.safetensors` of `folder`, or the shards of `model.safetensors.index.json` where
    /// there is no single file, and checks every header.
    ///
    /// # Errors
    /// Whatever is wrong with a file; see [`WeightsError`].
    pub fn open(folder: &Path) -> Result<Self, WeightsError> {
        let single = folder.join(SINGLE_FILE);
        if single.exists() {
            let file = WeightsFile::open(single.clone())?;
            let file_of = file.entries.keys().map(|name| (name.clone(), 0)).collect();
            return Ok(Self { files: vec![file], file_of, root: single });
        }
        let index = folder.join(INDEX_FILE);
        if index.exists() {
            return Self::open_shards(folder, index);
        }
        Err(WeightsError::NoWeights { folder: folder.to_owned() })
    }

    fn open_shards(folder: &Path, index: PathBuf) -> Result<Self, WeightsError> {
        let mut shards: Vec<String> = Vec::new();
        let (mut files, mut file_of) = (Vec::new(), BTreeMap::new());
        for (tensor, shard) in read_index(&index)? {
            let position = match shards.iter().position(|known| *known == shard) {
                Some(position) => position,
                None => {
                    files.push(open_shard(folder, &index, &tensor, &shard)?);
                    shards.push(shard);
                    files.len() - 1
                }
            };
            file_of.insert(tensor, position);
        }
        Ok(Self { files, file_of, root: index })
    }

    /// Number of tensors.
    #[must_use]
    pub fn tensor_count(&self) -> usize {
        self.file_of.len()
    }

    /// Size of all files in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.map.bytes().len() as u64).sum()
    }

    /// The files with their contents.
    pub(super) fn files(&self) -> impl Iterator<Item = (&Path, &[u8])> {
        self.files.iter().map(|file| (file.path.as_path(), file.map.bytes()))
    }

    /// Says that `tensor` was read and will not be again, so that its pages no longer count as this
    /// process's memory.
    pub fn release(&self, tensor: &StoredTensor<'_>) {
        let Some(file) = self.files.iter().find(|file| file.path == tensor.path) else { return };
        let start = tensor.bytes.as_ptr() as usize - file.map.bytes().as_ptr() as usize;
        file.map.release(start..start + tensor.bytes.len());
    }

    /// The tensor `name`, which must have the shape `expected` and a type the engine reads.
    ///
    /// # Errors
    /// [`WeightsError::MissingTensor`], [`WeightsError::Shape`], [`WeightsError::Dtype`].
    pub fn tensor(&self, name: &str, expected: &[usize]) -> Result<StoredTensor<'_>, WeightsError> {
        let missing = |path: &Path| WeightsError::MissingTensor {
            path: path.to_owned(),
            tensor: name.to_owned(),
            expected: expected.to_vec(),
        };
        let file = self.file_of.get(name).and_then(|&position| self.files.get(position));
        let file = file.ok_or_else(|| missing(&self.root))?;
        let entry = file.entries.get(name).ok_or_else(|| missing(&file.path))?;
        if entry.shape != expected {
            return Err(WeightsError::Shape {
                path: file.path.clone(),
                tensor: name.to_owned(),
                expected: expected.to_vec(),
                actual: entry.shape.clone(),
            });
        }
        let dtype = StoredDtype::from_name(&entry.dtype).ok_or_else(|| WeightsError::Dtype {
            path: file.path.clone(),
            tensor: name.to_owned(),
            dtype: entry.dtype.clone(),
        })?;
        let bytes = &file.map.bytes()[entry.range.0..entry.range.1];
        Ok(StoredTensor { path: &file.path, shape: &entry.shape, dtype, bytes })
    }
}

impl WeightsFile {
    fn open(path: PathBuf) -> Result<Self, WeightsError> {
        let map = MappedFile::open(&path)
            .map_err(|source| WeightsError::Read { path: path.clone(), source })?;
        let entries = header::parse(&path, map.bytes())?;
        Ok(Self { path, map, entries })
    }
}

fn read_index(path: &Path) -> Result<BTreeMap<String, String>, WeightsError> {
    let text = std::fs::read(path)
        .map_err(|source| WeightsError::Read { path: path.to_owned(), source })?;
    let index: Index = serde_json::from_slice(&text).map_err(|error| WeightsError::Index {
        path: path.to_owned(),
        reason: error.to_string(),
    })?;
    Ok(index.weight_map)
}

fn open_shard(
    folder: &Path,
    index: &Path,
    tensor: &str,
    shard: &str,
) -> Result<WeightsFile, WeightsError> {
    // A name with a folder in it could lead out of the model folder.
    if Path::new(shard).file_name() != Some(shard.as_ref()) {
        return Err(WeightsError::Index {
            path: index.to_owned(),
            reason: format!("tensor `{tensor}` is in `{shard}`, which is not a plain file name"),
        });
    }
    WeightsFile::open(folder.join(shard)).map_err(|error| match error {
        WeightsError::Read { source, .. } if source.kind() == io::ErrorKind::NotFound => {
            WeightsError::MissingShard {
                path: index.to_owned(),
                shard: shard.to_owned(),
                tensor: tensor.to_owned(),
            }
        }
        error => error,
    })
}

#[cfg(test)]
mod tests;
