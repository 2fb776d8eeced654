//! All files of a checkpoint as one set of named tensors.

mod fused;
mod merged_adapter;
mod names;
mod open;
mod task_adapters;
mod unit_vectors;
mod wrapped_layers;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use playhouse_kernels::{KernelError, Offsets};

pub use self::merged_adapter::MergedAdapter;
pub use self::task_adapters::TaskAdapters;
pub use self::unit_vectors::UnitVectors;
use super::dummy;
use super::gguf::{self, BlockFormat};
use super::header::Entry;
use super::matrix::MatrixElements;
use super::{Quantization, StoredDtype, StoredMatrix, StoredTensor, WeightsError};
use crate::model_files::Contents;

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
    /// The module of the base model, if the names in the files lack it.
    absent_base: Option<&'static str>,
    /// A part of the model's names, and the part that the files have in its place.
    renamed: Option<(&'static str, &'static str)>,
    /// From a model's names to those of a GGUF file. `None`: they are the same.
    gguf_name: Option<GgufName>,
    task_adapters: Option<TaskAdapters>,
    /// Whether layers may be those of PEFT, with adapters beside their weights.
    has_wrapped_layers: bool,
    /// The rank and the factor of an adapter among the files, which is added to matrices.
    merged: Option<(usize, f32)>,
    /// The module whose weight has vectors with norms of 1, and these vectors.
    unit_vectors: Option<(&'static str, UnitVectors)>,
}

/// Returns the name in a GGUF file of a tensor of the model.
pub type GgufName = fn(&str) -> String;

/// Names and storage of a checkpoint's tensors.
#[derive(Debug)]
enum Layout {
    /// As in Hugging Face models. In a quantized checkpoint, some matrices consist of several
    /// tensors.
    HuggingFace(Option<Quantization>),
    /// As in llama.cpp.
    Gguf,
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

impl Checkpoint {
    /// Returns generated weights in `dtype` for the model in the folder `model`.
    #[must_use]
    pub fn dummy(model: &Path, dtype: StoredDtype) -> Self {
        Self::of_files(model.to_owned(), Vec::new(), Layout::Dummy(dtype))
    }

    fn of_one_file(file: WeightsFile, layout: Layout) -> Self {
        Self::of_files(file.path.clone(), vec![file], layout)
    }

    /// Returns the tensors of files that share none. `root` names the checkpoint.
    fn of_files(root: PathBuf, files: Vec<WeightsFile>, layout: Layout) -> Self {
        let names = files.iter().enumerate().flat_map(|(file, WeightsFile { entries, .. })| {
            entries.keys().map(move |name| (name.clone(), file))
        });
        let file_of = names.collect();
        Self {
            root,
            files,
            file_of,
            layout,
            absent_base: None,
            renamed: None,
            gguf_name: None,
            task_adapters: None,
            has_wrapped_layers: false,
            merged: None,
            unit_vectors: None,
        }
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
            Layout::Gguf => format!("GGUF ({dtypes})"),
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
        let in_parts = match name.strip_suffix(".weight") {
            Some(module) => self.is_in_parts(module),
            None => self.is_fused_in_parts(name),
        };
        if in_parts || matches!(self.layout, Layout::Dummy(_)) {
            return Ok(());
        }
        self.raw(name, expected).map(|_| ())
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
        matches!(self.layout, Layout::Gguf)
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
        let Cow::Borrowed(bytes) = tensor.bytes else { return };
        let holds =
            |file: &&WeightsFile| file.contents.bytes().as_ptr_range().contains(&bytes.as_ptr());
        let Some(file) = self.files.iter().find(holds) else { return };
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
        let (shape, bytes) = (Cow::Borrowed(shape), Cow::Borrowed(bytes));
        let adapted = self.adapted(name, StoredTensor { path, shape, dtype, bytes })?;
        Ok(self.of_unit_vectors(name, self.with_merged(name, adapted)?))
    }

    /// Returns the tensor `name` of `len` integers.
    ///
    /// # Errors
    /// [`WeightsError::MissingTensor`], [`WeightsError::Shape`], and [`WeightsError::Dtype`] if it
    /// has another type than I64 or I32.
    pub fn integers(&self, name: &str, len: usize) -> Result<Vec<i64>, WeightsError> {
        let raw = self.raw(name, &[len])?;
        match raw.dtype {
            "I64" => Ok(integers(raw.bytes, i64::from_le_bytes)),
            "I32" => Ok(integers(raw.bytes, |bytes| i32::from_le_bytes(bytes).into())),
            _ => Err(raw.refused("I64 and I32")),
        }
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
            Layout::Gguf => {
                let raw = self.raw(&name, &shape)?;
                if let Some(format) = BlockFormat::from_name(raw.dtype) {
                    return self.decoded(module, format, raw.bytes, shape);
                }
            }
        }
        Ok(StoredMatrix::dense(self.tensor(&name, &shape)?))
    }

    /// Returns matrix `index` of the weight of `module`, `[count, out, in]`, in its stored form.
    ///
    /// # Errors
    /// As [`Checkpoint::matrix`].
    ///
    /// # Panics
    /// If `index` is not less than `count`.
    pub fn matrix_of(
        &self,
        module: &str,
        index: usize,
        [count, out, inputs]: [usize; 3],
    ) -> Result<StoredMatrix<'_>, WeightsError> {
        let (name, shape) = (format!("{module}.weight"), [out, inputs]);
        if let Layout::Dummy(_) = self.layout {
            return self.generated(&name, index, shape);
        }
        if let Layout::HuggingFace(Some(quantization)) = &self.layout
            && let Some(matrix) = quantization.read_slice(self, module, (index, count), shape)?
        {
            return Ok(matrix);
        }
        if self.is_gguf() {
            let raw = self.raw(&name, &[count, out, inputs])?;
            if let Some(format) = BlockFormat::from_name(raw.dtype) {
                let size = raw.bytes.len() / count.max(1);
                let bytes = &raw.bytes[index * size..(index + 1) * size];
                return self.decoded(module, format, bytes, shape);
            }
        }
        Ok(StoredMatrix::slice(self.tensor(&name, &[count, out, inputs])?, index, shape))
    }

    fn decoded(
        &self,
        module: &str,
        format: &BlockFormat,
        bytes: &[u8],
        shape: [usize; 2],
    ) -> Result<StoredMatrix<'_>, WeightsError> {
        let matrix =
            format.decode(bytes, shape).map_err(|source| self.no_matrix(module, source))?;
        let are_finite = |values: &[f32]| values.iter().all(|value| value.is_finite());
        let minima = match matrix.offsets() {
            Offsets::Values(minima) => minima.as_slice(),
            Offsets::None | Offsets::ZeroPoints(_) => &[],
        };
        if !are_finite(matrix.scales()) || !are_finite(minima) {
            let tensor = format!("{module}.weight");
            let path = self.path_of(&tensor).to_owned();
            let reason = "a block has a scale or minimum that is no finite number".to_owned();
            return Err(WeightsError::Quantized { path, tensor, reason });
        }
        let (elements, size_bytes) = (MatrixElements::Quantized(matrix), bytes.len() as u64);
        Ok(StoredMatrix { elements, tensor_count: 1, size_bytes })
    }

    /// Returns whether any matrix is kept as few-bit integers.
    #[must_use]
    pub fn has_quantized_weights(&self) -> bool {
        match &self.layout {
            Layout::HuggingFace(quantization) => {
                quantization.as_ref().is_some_and(Quantization::stays_quantized)
            }
            Layout::Dummy(_) => false,
            Layout::Gguf => {
                let mut entries = self.files.iter().flat_map(|file| file.entries.values());
                entries.any(|entry| BlockFormat::from_name(&entry.dtype).is_some())
            }
        }
    }

    /// Returns whether the matrices are stored as AWQ stores them.
    pub(crate) fn is_awq(&self) -> bool {
        matches!(self.layout, Layout::HuggingFace(Some(Quantization::Awq { .. })))
    }

    /// Returns whether the weight of `module` is kept as few-bit integers.
    #[must_use]
    pub fn is_quantized(&self, module: &str) -> bool {
        let dtype = self.stored_dtype_name(&format!("{module}.weight"));
        dtype.is_some_and(|dtype| StoredDtype::from_name(dtype).is_none())
    }

    /// Returns whether the weight of `module` is to be several tensors.
    pub(crate) fn is_in_parts(&self, module: &str) -> bool {
        let Layout::HuggingFace(Some(quantization)) = &self.layout else { return false };
        !self.has(&format!("{module}.weight")) || quantization.is_part(self, module)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.entry(name).is_some()
    }

    /// Returns the type of the tensor `name` as its file spells it.
    pub(super) fn stored_dtype_name(&self, name: &str) -> Option<&str> {
        self.entry(name).map(|(_, entry)| entry.dtype.as_str())
    }

    /// Returns the shape of the tensor `name`, if there is one.
    #[must_use]
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.stored_shape(name)
    }

    pub(super) fn stored_shape(&self, name: &str) -> Option<&[usize]> {
        self.entry(name).map(|(_, entry)| entry.shape.as_slice())
    }

    /// Returns the number of rows of the matrix `{module}.weight`, if there is one.
    #[must_use]
    pub fn num_rows(&self, module: &str) -> Option<usize> {
        self.stored_shape(&format!("{module}.weight"))?.first().copied()
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
        if !self.is_shape(&entry.shape, expected) {
            return Err(WeightsError::Shape {
                path: file.path.clone(),
                tensor: stored_name.into_owned(),
                config: match self.layout {
                    Layout::HuggingFace(_) | Layout::Dummy(_) => "config.json",
                    Layout::Gguf => "the metadata",
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

    /// Returns whether a tensor of the shape `stored` has the shape `expected`. GGUF has no
    /// difference between a row and a matrix of one row, and the converter drops dimensions of 1.
    /// It also stores the vectors of groups as rows.
    fn is_shape(&self, stored: &[usize], expected: &[usize]) -> bool {
        let without_ones =
            |shape: &[usize]| shape.iter().copied().filter(|size| *size != 1).collect::<Vec<_>>();
        let is_vector = || stored.iter().product::<usize>() == expected.iter().product::<usize>();
        let is_alike =
            || without_ones(stored) == without_ones(expected) || expected.len() == 1 && is_vector();
        stored == expected || self.is_gguf() && is_alike()
    }

    /// Returns the accepted types of a tensor, for errors.
    fn dense(&self) -> &'static str {
        match self.layout {
            Layout::HuggingFace(_) | Layout::Dummy(_) => DENSE,
            Layout::Gguf => gguf::ACCEPTED,
        }
    }
}

/// Returns the integers of little-endian `bytes`.
fn integers<const N: usize>(bytes: &[u8], of: fn([u8; N]) -> i64) -> Vec<i64> {
    bytes.as_chunks().0.iter().copied().map(of).collect()
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

#[cfg(test)]
mod tests;
