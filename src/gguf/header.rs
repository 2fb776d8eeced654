//! The header of a GGUF file: magic, version, metadata, and the places of the tensors.
//!
//! The format: <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use super::ggml_type::GgmlType;
use super::reader::Reader;
use super::value::{Kind, Value};
use super::{FORMAT, MAGIC};
use crate::model_files::ModelFileError;

/// The versions with 64-bit counts, which all writers have used since 2023.
const VERSIONS: Range<u32> = 2..4;
const ALIGNMENT_KEY: &str = "general.alignment";
const DEFAULT_ALIGNMENT: u64 = 32;
const ALIGNMENT_MAX: u64 = 1 << 20;
/// The format's own limit on the dimensions of a tensor.
const DIMENSIONS_MAX: u32 = 4;
/// Bytes of the shortest key and value.
const METADATA_BYTES_MIN: usize = 8 + 4 + 1;
/// Bytes of the shortest tensor description.
const TENSOR_BYTES_MIN: usize = 8 + 4 + 8 + 4 + 8;

/// The content of a header.
#[derive(Debug)]
pub(super) struct Header {
    pub(super) metadata: BTreeMap<String, Value>,
    pub(super) tensors: BTreeMap<String, TensorInfo>,
}

/// The place of one tensor in its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TensorInfo {
    /// How its elements are stored.
    pub(crate) kind: GgmlType,
    /// Outermost first, in the reverse order of the file.
    pub(crate) shape: Vec<usize>,
    /// In bytes from the start of the file; within the file.
    pub(crate) range: Range<usize>,
}

/// A tensor's description, with the offset still relative to the data.
struct RawTensor {
    name: String,
    kind: GgmlType,
    shape: Vec<usize>,
    offset: u64,
    size_bytes: u64,
}

/// Reads and checks the header of the file `path`, whose contents are `file`.
///
/// # Errors
/// [`ModelFileError::Invalid`] and [`ModelFileError::Truncated`].
pub(super) fn parse(path: &Path, file: &[u8]) -> Result<Header, ModelFileError> {
    let invalid = ModelFileError::invalid(path, FORMAT);
    let mut reader = Reader::new(file);
    let tensor_count = read_preamble(&mut reader).map_err(&invalid)?;
    let metadata = read_metadata(&mut reader).map_err(&invalid)?;
    let mut tensors = Vec::new();
    for _ in 0..tensor_count {
        tensors.push(read_tensor(&mut reader).map_err(&invalid)?);
    }
    let alignment = alignment(&metadata).map_err(&invalid)?;
    // At most the size of the file, and a little more.
    let data_start = (reader.position() as u64).next_multiple_of(alignment);
    tensors.sort_by_key(|tensor| (tensor.offset, tensor.size_bytes));
    let tensors = place(path, tensors, data_start, alignment, file.len() as u64)?;
    Ok(Header { metadata, tensors })
}

/// Reads magic and version. Returns the number of tensors.
fn read_preamble(reader: &mut Reader<'_>) -> Result<usize, String> {
    if reader.take(MAGIC.len() as u64)? != MAGIC {
        return Err("it does not begin with `GGUF`".to_owned());
    }
    let version = reader.u32()?;
    if VERSIONS.contains(&version.swap_bytes()) {
        return Err("it is big-endian; convert it for little-endian machines".to_owned());
    }
    if !VERSIONS.contains(&version) {
        let (first, last) = (VERSIONS.start, VERSIONS.end - 1);
        return Err(format!("version {version}; versions {first} to {last} are read"));
    }
    reader.count("tensors", TENSOR_BYTES_MIN)
}

fn read_metadata(reader: &mut Reader<'_>) -> Result<BTreeMap<String, Value>, String> {
    let mut metadata = BTreeMap::new();
    for _ in 0..reader.count("metadata values", METADATA_BYTES_MIN)? {
        let key = reader.text()?.to_owned();
        let value = Kind::read(reader).and_then(|kind| Value::read(reader, kind));
        let value = value.map_err(|reason| format!("metadata `{key}`: {reason}"))?;
        if metadata.insert(key.clone(), value).is_some() {
            return Err(format!("metadata `{key}` is there twice"));
        }
    }
    Ok(metadata)
}

fn alignment(metadata: &BTreeMap<String, Value>) -> Result<u64, String> {
    let Some(value) = metadata.get(ALIGNMENT_KEY) else { return Ok(DEFAULT_ALIGNMENT) };
    let fits = |bytes: &u64| bytes.is_power_of_two() && (8..=ALIGNMENT_MAX).contains(bytes);
    value.unsigned().filter(fits).ok_or_else(|| {
        format!(
            "metadata `{ALIGNMENT_KEY}` is {value}; expected a power of two from 8 to \
             {ALIGNMENT_MAX}"
        )
    })
}

fn read_tensor(reader: &mut Reader<'_>) -> Result<RawTensor, String> {
    let name = reader.text()?.to_owned();
    read_named_tensor(reader, &name).map_err(|reason| format!("tensor `{name}`: {reason}"))
}

fn read_named_tensor(reader: &mut Reader<'_>, name: &str) -> Result<RawTensor, String> {
    let dimensions = reader.u32()?;
    if !(1..=DIMENSIONS_MAX).contains(&dimensions) {
        return Err(format!("{dimensions} dimensions; expected 1 to {DIMENSIONS_MAX}"));
    }
    let mut shape = Vec::new();
    for _ in 0..dimensions {
        let side = reader.u64()?;
        shape.push(usize::try_from(side).map_err(|_| format!("a side of {side}"))?);
    }
    let row = shape[0];
    shape.reverse();
    let number = reader.u32()?;
    let kind = GgmlType::from_number(number).ok_or_else(|| format!("the unknown type {number}"))?;
    let offset = reader.u64()?;
    if !row.is_multiple_of(kind.block_elements) {
        let (name, block) = (kind.name, kind.block_elements);
        return Err(format!("rows of {row} elements in {name}, whose blocks have {block}"));
    }
    let elements = shape.iter().try_fold(1u64, |n, &side| n.checked_mul(side as u64));
    let size_bytes = elements
        .map(|elements| elements / kind.block_elements as u64)
        .and_then(|blocks| blocks.checked_mul(kind.block_bytes as u64))
        .ok_or_else(|| format!("shape {shape:?} overflows"))?;
    Ok(RawTensor { name: name.to_owned(), kind, shape, offset, size_bytes })
}

/// Compares the tensors, sorted by their begin, with each other and with the size of the file.
fn place(
    path: &Path,
    tensors: Vec<RawTensor>,
    data_start: u64,
    alignment: u64,
    file_bytes: u64,
) -> Result<BTreeMap<String, TensorInfo>, ModelFileError> {
    let invalid = ModelFileError::invalid(path, FORMAT);
    let mut placed = BTreeMap::new();
    let mut free_from = 0;
    for RawTensor { name, kind, shape, offset, size_bytes } in tensors {
        if offset < free_from || !offset.is_multiple_of(alignment) {
            return Err(invalid(format!(
                "tensor `{name}` starts at data byte {offset}; expected a multiple of {alignment} \
                 from {free_from}"
            )));
        }
        let start = data_start.checked_add(offset);
        let end = start.and_then(|start| start.checked_add(size_bytes));
        let (Some(start), Some(end)) = (start, end.filter(|end| *end <= file_bytes)) else {
            return Err(ModelFileError::Truncated {
                path: path.to_owned(),
                tensor: name,
                expected_bytes: end.unwrap_or(u64::MAX),
                actual_bytes: file_bytes,
            });
        };
        free_from = offset + size_bytes;
        let range = start as usize..end as usize;
        if placed.insert(name.clone(), TensorInfo { kind, shape, range }).is_some() {
            return Err(invalid(format!("tensor `{name}` is there twice")));
        }
    }
    Ok(placed)
}
