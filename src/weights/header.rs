//! The header of a safetensors file: eight bytes of length (little endian), then JSON that gives
//! each tensor a dtype, a shape, and a range of the bytes that follow.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use crate::model_files::ModelFileError;

/// The format's own limit on a header.
const HEADER_BYTES_MAX: u64 = 100_000_000;
/// The name of the format in errors.
const FORMAT: &str = "safetensors file";
/// The key beside the tensors that holds free text.
const METADATA_KEY: &str = "__metadata__";

/// The place of one tensor in its file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// The type as the file spells it: `F32`, `BF16`, …
    pub(super) dtype: String,
    pub(super) shape: Vec<usize>,
    /// Start and end, in bytes from the start of the file; within the file.
    pub(super) range: (usize, usize),
}

#[derive(Deserialize)]
struct RawEntry {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: (u64, u64),
}

/// Reads and checks the header of the file `path`, whose contents are `file`.
///
/// As the format demands, tensors must tile the data: no gaps, no overlap, no bytes left over.
///
/// # Errors
/// [`ModelFileError::Invalid`] and [`ModelFileError::Truncated`].
pub(super) fn parse(path: &Path, file: &[u8]) -> Result<BTreeMap<String, Entry>, ModelFileError> {
    let invalid = ModelFileError::invalid(path, FORMAT);
    let (json, data_start) = split(file).map_err(&invalid)?;
    let mut raw: BTreeMap<String, serde_json::Value> =
        serde_json::from_slice(json).map_err(|error| invalid(error.to_string()))?;
    raw.remove(METADATA_KEY);

    let mut entries = Vec::with_capacity(raw.len());
    for (name, value) in raw {
        let entry = RawEntry::deserialize(value)
            .map_err(|error| invalid(format!("tensor `{name}`: {error}")))?;
        check_size(&entry).map_err(|reason| invalid(format!("tensor `{name}`: {reason}")))?;
        entries.push((name, entry));
    }
    // Empty tensors share their start with a neighbour, so both ends are compared.
    entries.sort_by_key(|(_, entry)| entry.data_offsets);
    place(path, entries, data_start as u64, file.len() as u64)
}

/// Returns the JSON of the header, and where the data starts.
fn split(file: &[u8]) -> Result<(&[u8], usize), String> {
    let (length, rest) = file
        .split_first_chunk::<8>()
        .ok_or_else(|| format!("{} bytes are too few for a header", file.len()))?;
    let length = u64::from_le_bytes(*length);
    if length > HEADER_BYTES_MAX {
        return Err(format!("a header of {length} bytes; at most {HEADER_BYTES_MAX} are allowed"));
    }
    let json = rest.get(..length as usize).ok_or_else(|| {
        format!("truncated: a header of {length} bytes in a file of {}", file.len())
    })?;
    Ok((json, 8 + json.len()))
}

/// Checks that dtype, shape and byte range of one tensor agree.
fn check_size(entry: &RawEntry) -> Result<(), String> {
    let (start, end) = entry.data_offsets;
    let bytes = end.checked_sub(start).ok_or_else(|| format!("bytes {start} to {end}"))?;
    let elements = entry.shape.iter().try_fold(1u64, |n, &side| n.checked_mul(side as u64));
    let elements = elements.ok_or_else(|| format!("shape {:?} overflows", entry.shape))?;
    let Some(bits) = bits_per_element(&entry.dtype) else { return Ok(()) };
    match elements.checked_mul(bits) {
        Some(total) if total.is_multiple_of(8) && total / 8 == bytes => Ok(()),
        _ => Err(format!(
            "{} of shape {:?} does not fill {bytes} bytes exactly",
            entry.dtype, entry.shape
        )),
    }
}

/// Places the sorted tensors end to end, and compares the result with the size of the file.
fn place(
    path: &Path,
    entries: Vec<(String, RawEntry)>,
    data_start: u64,
    file_bytes: u64,
) -> Result<BTreeMap<String, Entry>, ModelFileError> {
    let invalid = ModelFileError::invalid(path, FORMAT);
    let mut placed = BTreeMap::new();
    let mut next = 0;
    for (name, RawEntry { dtype, shape, data_offsets: (start, end) }) in entries {
        if start != next {
            return Err(invalid(format!(
                "tensor `{name}` starts at data byte {start}, but the one before ends at {next}"
            )));
        }
        next = end;
        match data_start.checked_add(end) {
            Some(end) if end <= file_bytes => {
                let range = ((data_start + start) as usize, end as usize);
                placed.insert(name, Entry { dtype, shape, range });
            }
            end => {
                return Err(ModelFileError::Truncated {
                    path: path.to_owned(),
                    tensor: name,
                    expected_bytes: end.unwrap_or(u64::MAX),
                    actual_bytes: file_bytes,
                });
            }
        }
    }
    match file_bytes - data_start - next {
        0 => Ok(placed),
        rest => Err(invalid(format!("{rest} bytes after the last tensor"))),
    }
}

/// Returns the width of a dtype of the format in bits. `None` for any other dtype.
fn bits_per_element(dtype: &str) -> Option<u64> {
    Some(match dtype {
        "F4" => 4,
        "F6_E2M3" | "F6_E3M2" => 6,
        "BOOL" | "U8" | "I8" | "F8_E5M2" | "F8_E4M3" | "F8_E8M0" | "F8_E4M3FNUZ"
        | "F8_E5M2FNUZ" => 8,
        "I16" | "U16" | "F16" | "BF16" => 16,
        "I32" | "U32" | "F32" => 32,
        "F64" | "I64" | "U64" | "C64" => 64,
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
