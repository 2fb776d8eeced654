//! Opening the files of a checkpoint: one, several by their index, or a GGUF file.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{Checkpoint, Layout, WeightsFile, gguf};
use crate::gguf::{GgufFile, is_gguf};
use crate::model_files::{self, Contents, ModelFileError};
use crate::weights::WeightsError;
use crate::weights::header::{self, Entry};

pub(super) const SINGLE_FILE: &str = "model.safetensors";
pub(super) const INDEX_FILE: &str = "model.safetensors.index.json";
/// The name of the index in errors.
const INDEX_FORMAT: &str = "safetensors index";

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

impl Checkpoint {
    /// Opens `model`, a GGUF file, or a folder: its `model.safetensors`, or the shards of
    /// `model.safetensors.index.json` where there is no single file. Checks every header.
    ///
    /// # Errors
    /// Whatever is wrong with a file; see [`WeightsError`].
    pub fn open(model: &Path) -> Result<Self, WeightsError> {
        if is_gguf(model) {
            return Self::open_gguf(model);
        }
        let single = model.join(SINGLE_FILE);
        if model_files::exists(&single) {
            return Ok(Self::of_one_file(WeightsFile::open(single)?, Layout::HuggingFace(None)));
        }
        let index = model.join(INDEX_FILE);
        if model_files::exists(&index) {
            return Self::open_shards(model, index);
        }
        Err(WeightsError::NoWeights { folder: model.to_owned() })
    }

    /// Returns the tensors of a safetensors file that was read into memory. `path` names it in
    /// errors.
    ///
    /// # Errors
    /// [`WeightsError::File`] if the bytes are no such file.
    pub fn of_bytes(path: PathBuf, bytes: Vec<u8>) -> Result<Self, WeightsError> {
        let entries = header::parse(&path, &bytes)?;
        let file = WeightsFile { path, contents: bytes.into(), entries };
        Ok(Self::of_one_file(file, Layout::HuggingFace(None)))
    }

    fn open_gguf(path: &Path) -> Result<Self, WeightsError> {
        let file = GgufFile::open(path)?;
        let numbers = gguf::numbers(&file)?;
        let files = file.into_parts().map(|part| {
            let entries = part.tensors.into_iter().map(|(name, tensor)| {
                let (dtype, shape) = (tensor.kind.name.to_owned(), tensor.shape);
                // Falcon-H1's files lack the end of this name.
                let end = if name.ends_with(".ffn_norm") { ".weight" } else { "" };
                (
                    format!("{name}{end}"),
                    Entry { dtype, shape, range: (tensor.range.start, tensor.range.end) },
                )
            });
            let entries = entries.collect();
            WeightsFile { path: part.path, contents: Contents::Mapped(part.map), entries }
        });
        let checkpoint = Self::of_files(path.to_owned(), files.collect(), Layout::Gguf);
        Ok(checkpoint.with_numbers(path, numbers))
    }

    /// Adds tensors of one number each, which a file holds elsewhere.
    fn with_numbers(mut self, path: &Path, numbers: Vec<(String, f32)>) -> Self {
        if numbers.is_empty() {
            return self;
        }
        let (mut bytes, mut entries) = (Vec::new(), BTreeMap::new());
        for (name, number) in numbers {
            let range = (bytes.len(), bytes.len() + 4);
            bytes.extend(number.to_le_bytes());
            let entry = Entry { dtype: "F32".to_owned(), shape: Vec::new(), range };
            self.file_of.insert(name.clone(), self.files.len());
            entries.insert(name, entry);
        }
        self.files.push(WeightsFile { path: path.to_owned(), contents: bytes.into(), entries });
        self
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
        Ok(Self {
            files,
            file_of,
            root: index,
            layout: Layout::HuggingFace(None),
            absent_base: None,
            renamed: None,
            gguf_name: None,
            task_adapters: None,
            has_wrapped_layers: false,
            merged: None,
            unit_vectors: None,
        })
    }
}

impl WeightsFile {
    pub(super) fn open(path: PathBuf) -> Result<Self, WeightsError> {
        let contents = Contents::open(&path).map_err(ModelFileError::read(&path))?;
        let entries = header::parse(&path, contents.bytes())?;
        Ok(Self { path, contents, entries })
    }
}

fn read_index(path: &Path) -> Result<BTreeMap<String, String>, WeightsError> {
    let text = model_files::read(path).map_err(ModelFileError::read(path))?;
    let index: Result<Index, _> = serde_json::from_slice(&text);
    let invalid = ModelFileError::invalid(path, INDEX_FORMAT);
    Ok(index.map_err(|error| invalid(error.to_string()))?.weight_map)
}

fn open_shard(
    folder: &Path,
    index: &Path,
    tensor: &str,
    shard: &str,
) -> Result<WeightsFile, WeightsError> {
    // A name with a folder in it could lead out of the model folder.
    if Path::new(shard).file_name() != Some(shard.as_ref()) {
        let reason = format!("tensor `{tensor}` is in `{shard}`, which is not a plain file name");
        return Err(ModelFileError::invalid(index, INDEX_FORMAT)(reason).into());
    }
    WeightsFile::open(folder.join(shard)).map_err(|error| match error {
        WeightsError::File(ModelFileError::Read { source, .. })
            if source.kind() == io::ErrorKind::NotFound =>
        {
            WeightsError::MissingShard {
                path: index.to_owned(),
                shard: shard.to_owned(),
                tensor: tensor.to_owned(),
            }
        }
        error => error,
    })
}
