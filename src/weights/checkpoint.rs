//! All files of a checkpoint as one set of named tensors.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use playhouse_kernels::KernelError;
use serde::Deserialize;

use super::dummy;
use super::gguf::{self, BlockFormat, RotaryHeads};
use super::header::{self, Entry};
use super::matrix::MatrixElements;
use super::{Quantization, StoredDtype, StoredMatrix, StoredTensor, WeightsError};
use crate::gguf::{GgufFile, is_gguf};
use crate::model_files::{self, Contents, ModelFileError};

const SINGLE_FILE: &str = "model.safetensors";
const INDEX_FILE: &str = "model.safetensors.index.json";
/// The name of the index in errors.
const INDEX_FORMAT: &str = "safetensors index";
/// The types of dense tensors in safetensors files.
const DENSE: &str = "F32, F16 and BF16";

/// The weights of a model, mapped into memory.
#[derive(Debug)]
pub struct Checkpoint {
    files: Vec<WeightsFile>,
    /// Index in `files` of the file that holds a tensor.
    file_of: BTreeMap<String, usize>,
    /// The path in an error about a tensor that no file holds.
    root: PathBuf,
    layout: Layout,
}

/// Names and storage of a checkpoint's tensors.
#[derive(Debug)]
enum Layout {
    /// As in Hugging Face models. In a quantized checkpoint, some matrices consist of several
    /// tensors.
    HuggingFace(Option<Quantization>),
    /// As in llama.cpp. With `rotary_heads`, the rows of q and k have its order.
    Gguf { rotary_heads: Option<RotaryHeads> },
    /// Not stored: every requested tensor is generated.
    Dummy(StoredDtype),
}

#[derive(Debug)]
struct WeightsFile {
    path: PathBuf,
    contents: Contents,
    entries: BTreeMap<String, Entry>,
}

/// The bytes of a tensor of any type.
pub(super) struct RawTensor<'a> {
    pub(super) path: &'a Path,
    pub(super) name: String,
    pub(super) shape: &'a [usize],
    /// The type as the file spells it.
    pub(super) dtype: &'a str,
    pub(super) bytes: &'a [u8],
}

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

    /// Returns generated weights in `dtype` for the model in the folder `model`.
    #[must_use]
    pub fn dummy(model: &Path, dtype: StoredDtype) -> Self {
        let (files, file_of) = (Vec::new(), BTreeMap::new());
        Self { files, file_of, root: model.to_owned(), layout: Layout::Dummy(dtype) }
    }

    fn open_gguf(path: &Path) -> Result<Self, WeightsError> {
        let file = GgufFile::open(path)?;
        let heads = |key: &str| Ok::<_, WeightsError>(file.same_in_all_layers(key)?);
        let rotary_heads = match file.text("general.architecture")? {
            Some("llama") => heads("llama.attention.head_count")?.map(|query| (query, query)),
            _ => None,
        };
        let rotary_heads = match rotary_heads {
            Some((query, same)) => {
                let key = heads("llama.attention.head_count_kv")?.unwrap_or(same);
                Some(RotaryHeads { query: query as usize, key: key as usize })
            }
            None => None,
        };
        let entries = file.tensors().map(|(name, tensor)| {
            let (dtype, shape) = (tensor.kind.name.to_owned(), tensor.shape.clone());
            (name.clone(), Entry { dtype, shape, range: (tensor.range.start, tensor.range.end) })
        });
        let entries = entries.collect();
        let weights = WeightsFile {
            path: path.to_owned(),
            contents: Contents::Mapped(file.into_map()),
            entries,
        };
        Ok(Self::of_one_file(weights, Layout::Gguf { rotary_heads }))
    }

    fn of_one_file(file: WeightsFile, layout: Layout) -> Self {
        let file_of = file.entries.keys().map(|name| (name.clone(), 0)).collect();
        Self { root: file.path.clone(), files: vec![file], file_of, layout }
    }

    /// Returns the same checkpoint whose matrices are stored in the format `quantization`. A GGUF
    /// file itself gives its format.
    #[must_use]
    pub fn quantized(mut self, quantization: Option<Quantization>) -> Self {
        if let Layout::HuggingFace(stored) = &mut self.layout {
            *stored = quantization;
        }
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
        Ok(Self { files, file_of, root: index, layout: Layout::HuggingFace(None) })
    }

    /// Returns its content for the log: the format, and the types of its matrices.
    #[must_use]
    pub fn format(&self) -> String {
        let entries = self.files.iter().flat_map(|file| file.entries.values());
        let matrices = entries.filter(|entry| entry.shape.len() > 1);
        let dtypes: BTreeSet<&str> = matrices.map(|entry| entry.dtype.as_str()).collect();
        let dtypes = dtypes.into_iter().collect::<Vec<_>>().join(", ");
        match &self.layout {
            Layout::HuggingFace(Some(quantization)) => {
                format!("safetensors, {quantization} ({dtypes})")
            }
            Layout::HuggingFace(None) => format!("safetensors ({dtypes})"),
            Layout::Gguf { .. } => format!("GGUF ({dtypes})"),
            Layout::Dummy(dtype) => format!("made up ({dtype:?})"),
        }
    }

    /// Returns the number of tensors.
    #[must_use]
    pub fn tensor_count(&self) -> usize {
        self.file_of.len()
    }

    /// Returns the size of all files in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.contents.bytes().len() as u64).sum()
    }

    /// Returns the files with their contents.
    pub(super) fn files(&self) -> impl Iterator<Item = (&Path, &Contents)> {
        self.files.iter().map(|file| (file.path.as_path(), &file.contents))
    }

    /// Checks that the tensor `name` exists in the shape `expected`. A quantized matrix consists of
    /// several tensors, whose shapes are checked when it is read. Generated weights have any shape.
    ///
    /// # Errors
    /// [`WeightsError::MissingTensor`] and [`WeightsError::Shape`].
    pub fn require_shape(&self, name: &str, expected: &[usize]) -> Result<(), WeightsError> {
        let in_parts = matches!(self.layout, Layout::HuggingFace(Some(_))) && !self.has(name);
        if in_parts && name.ends_with(".weight") || matches!(self.layout, Layout::Dummy(_)) {
            return Ok(());
        }
        self.raw(name, expected).map(|_| ())
    }

    /// Returns the names of all tensors in Hugging Face's spelling. A tensor that no such model has
    /// keeps its name.
    pub fn hugging_face_names(&self) -> impl Iterator<Item = Cow<'_, str>> {
        let is_gguf = self.is_gguf();
        let stored = self.file_of.keys().map(String::as_str);
        let to_load = stored.filter(move |name| !(is_gguf && *name == gguf::ROPE_FREQS));
        to_load.map(move |name| match gguf::hugging_face_name(name).filter(|_| is_gguf) {
            Some(name) => Cow::Owned(name),
            None => Cow::Borrowed(name),
        })
    }

    /// Returns whether the tensor `name` holds nothing but zeros.
    #[must_use]
    pub fn is_zero(&self, name: &str) -> bool {
        self.bytes_of(name).is_some_and(|bytes| bytes.iter().all(|byte| *byte == 0))
    }

    /// Returns whether two tensors have the same type and the same bytes.
    #[must_use]
    pub fn are_equal(&self, one: &str, other: &str) -> bool {
        let same = |of: fn(&Entry) -> String| {
            let of = |name| self.entry(name).map(|(_, entry)| of(entry));
            of(one) == of(other)
        };
        same(|entry| format!("{} {:?}", entry.dtype, entry.shape))
            && self.bytes_of(one) == self.bytes_of(other)
    }

    fn bytes_of(&self, name: &str) -> Option<&[u8]> {
        let (file, entry) = self.entry(name)?;
        file.contents.bytes().get(entry.range.0..entry.range.1)
    }

    /// Returns whether it is a GGUF file.
    #[must_use]
    pub fn is_gguf(&self) -> bool {
        matches!(self.layout, Layout::Gguf { .. })
    }

    /// Checks that no file was written or truncated since it was opened. Otherwise the data read
    /// could be a mixture of two versions.
    ///
    /// # Errors
    /// [`WeightsError::Changed`] names the file.
    pub fn require_unchanged(&self) -> Result<(), WeightsError> {
        match self.files.iter().find(|file| !file.contents.is_unchanged()) {
            None => Ok(()),
            Some(file) => Err(WeightsError::Changed { path: file.path.clone() }),
        }
    }

    /// Declares that `tensor` was read for the last time. Its pages then no longer count as this
    /// process's memory.
    pub fn release(&self, tensor: &StoredTensor<'_>) {
        let Some(file) = self.files.iter().find(|file| file.path == tensor.path) else { return };
        let Cow::Borrowed(bytes) = tensor.bytes else { return };
        let start = bytes.as_ptr() as usize - file.contents.bytes().as_ptr() as usize;
        file.contents.release(start..start + tensor.bytes.len());
    }

    /// Returns the tensor `name`, which must have the shape `expected` and a type the engine reads.
    ///
    /// # Errors
    /// [`WeightsError::MissingTensor`], [`WeightsError::Shape`], [`WeightsError::Dtype`].
    pub fn tensor(&self, name: &str, expected: &[usize]) -> Result<StoredTensor<'_>, WeightsError> {
        if let Layout::Dummy(dtype) = self.layout {
            let (shape, bytes) = (expected.to_vec(), dummy::bytes(name, expected, dtype));
            let (shape, bytes) = (Cow::Owned(shape), Cow::Owned(bytes));
            return Ok(StoredTensor { path: &self.root, shape, dtype, bytes });
        }
        let raw = self.raw(name, expected)?;
        let dtype = StoredDtype::from_name(raw.dtype).ok_or_else(|| raw.refused(self.dense()))?;
        let RawTensor { path, shape, bytes, .. } = raw;
        let bytes = match self.row_order(name, expected) {
            Some(order) => order.restore(bytes, bytes.len() / expected[0].max(1)),
            None => Cow::Borrowed(bytes),
        };
        Ok(StoredTensor { path, shape: Cow::Borrowed(shape), dtype, bytes })
    }

    /// Returns the weight of `module`, `[out, in]`, in the form in which it is stored.
    ///
    /// # Errors
    /// As [`Checkpoint::tensor`], and [`WeightsError::Quantized`] and [`WeightsError::Matrix`].
    pub fn matrix(
        &self,
        module: &str,
        shape: [usize; 2],
    ) -> Result<StoredMatrix<'_>, WeightsError> {
        let name = format!("{module}.weight");
        match &self.layout {
            Layout::HuggingFace(Some(quantization)) => {
                if let Some(matrix) = quantization.read(self, module, shape)? {
                    return Ok(matrix);
                }
            }
            Layout::HuggingFace(None) | Layout::Dummy(_) => {}
            Layout::Gguf { .. } => {
                let raw = self.raw(&name, &shape)?;
                if let Some(format) = BlockFormat::from_name(raw.dtype) {
                    let matrix = format.decode(raw.bytes, shape, self.row_order(&name, &shape));
                    let matrix = matrix.map_err(|source| self.no_matrix(module, source))?;
                    return Ok(StoredMatrix {
                        elements: MatrixElements::Quantized(matrix),
                        tensor_count: 1,
                        size_bytes: raw.bytes.len() as u64,
                    });
                }
            }
        }
        Ok(StoredMatrix::dense(self.tensor(&name, &shape)?))
    }

    /// Returns whether any matrix is kept as few-bit integers.
    #[must_use]
    pub fn has_quantized_weights(&self) -> bool {
        match &self.layout {
            Layout::HuggingFace(quantization) => quantization.is_some(),
            Layout::Dummy(_) => false,
            Layout::Gguf { .. } => {
                let mut entries = self.files.iter().flat_map(|file| file.entries.values());
                entries.any(|entry| BlockFormat::from_name(&entry.dtype).is_some())
            }
        }
    }

    /// Returns whether the weight of `module` is kept as few-bit integers.
    #[must_use]
    pub fn is_quantized(&self, module: &str) -> bool {
        let dtype = self.stored_dtype_name(&format!("{module}.weight"));
        dtype.is_some_and(|dtype| StoredDtype::from_name(dtype).is_none())
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.entry(name).is_some()
    }

    /// Returns the type of the tensor `name` as its file spells it.
    pub(super) fn stored_dtype_name(&self, name: &str) -> Option<&str> {
        self.entry(name).map(|(_, entry)| entry.dtype.as_str())
    }

    pub(super) fn stored_shape(&self, name: &str) -> Option<&[usize]> {
        self.entry(name).map(|(_, entry)| entry.shape.as_slice())
    }

    /// Returns the file that holds the tensor `name`, or should hold it.
    #[must_use]
    pub fn path_of(&self, name: &str) -> &Path {
        let position = self.file_of.get(&*self.stored_name(name));
        position.and_then(|&position| self.files.get(position)).map_or(&self.root, |f| &f.path)
    }

    /// Returns the error that the parts of a matrix do not form one.
    pub(super) fn no_matrix(&self, module: &str, source: KernelError) -> WeightsError {
        let path = self.path_of(&format!("{module}.weight")).to_owned();
        WeightsError::Matrix { path, module: module.to_owned(), source }
    }

    /// Returns the bytes of the tensor `name`, which must have the shape `expected`.
    pub(super) fn raw(
        &self,
        name: &str,
        expected: &[usize],
    ) -> Result<RawTensor<'_>, WeightsError> {
        let stored_name = self.stored_name(name);
        let Some((file, entry)) = self.entry(name) else {
            return Err(WeightsError::MissingTensor {
                path: self.path_of(name).to_owned(),
                tensor: stored_name.into_owned(),
                expected: expected.to_vec(),
            });
        };
        if entry.shape != expected {
            return Err(WeightsError::Shape {
                path: file.path.clone(),
                tensor: stored_name.into_owned(),
                config: match self.layout {
                    Layout::HuggingFace(_) | Layout::Dummy(_) => "config.json",
                    Layout::Gguf { .. } => "the metadata",
                },
                expected: expected.to_vec(),
                actual: entry.shape.clone(),
            });
        }
        let bytes = &file.contents.bytes()[entry.range.0..entry.range.1];
        let name = stored_name.into_owned();
        Ok(RawTensor { path: &file.path, name, shape: &entry.shape, dtype: &entry.dtype, bytes })
    }

    /// Returns the file that holds the tensor `name`, and its place there.
    fn entry(&self, name: &str) -> Option<(&WeightsFile, &Entry)> {
        let name = self.stored_name(name);
        let file = self.files.get(*self.file_of.get(&*name)?)?;
        Some((file, file.entries.get(&*name)?))
    }

    /// Returns the name of the tensor `name` in the file.
    pub fn stored_name<'n>(&self, name: &'n str) -> Cow<'n, str> {
        match self.layout {
            Layout::HuggingFace(_) | Layout::Dummy(_) => Cow::Borrowed(name),
            Layout::Gguf { .. } => Cow::Owned(gguf::stored_name(name)),
        }
    }

    fn row_order(&self, name: &str, shape: &[usize]) -> Option<gguf::RowOrder> {
        match &self.layout {
            Layout::Gguf { rotary_heads: Some(heads) } => heads.order(name, *shape.first()?),
            _ => None,
        }
    }

    /// Returns the accepted types of a tensor, for errors.
    fn dense(&self) -> &'static str {
        match self.layout {
            Layout::HuggingFace(_) | Layout::Dummy(_) => DENSE,
            Layout::Gguf { .. } => gguf::ACCEPTED,
        }
    }
}

impl RawTensor<'_> {
    /// Returns the error that the tensor has a type that is not read here.
    pub(super) fn refused(&self, accepted: &'static str) -> WeightsError {
        WeightsError::Dtype {
            path: self.path.to_owned(),
            tensor: self.name.clone(),
            dtype: self.dtype.to_owned(),
            accepted,
        }
    }
}

impl WeightsFile {
    fn open(path: PathBuf) -> Result<Self, WeightsError> {
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

#[cfg(test)]
mod tests;
