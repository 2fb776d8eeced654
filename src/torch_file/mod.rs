//! Tensors in files of `torch.save`: an archive with a pickle that describes them, and a file for
//! the elements of each. Nothing in a file is run.

pub(crate) mod pickle;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    io::{Cursor, Read},
};

use half::{bf16, f16};
use zip::{CompressionMethod, ZipArchive};

use self::pickle::{StoredDtype, StoredTensor};

/// The first bytes of an archive.
pub(crate) const ARCHIVE: &[u8] = b"PK\x03\x04";
/// Most entries of an archive. That of one tensor has seven.
const ENTRIES_MAX: usize = 64;

/// A tensor of a file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FileTensor {
    pub(crate) shape: Vec<usize>,
    pub(crate) elements: Elements,
}

/// The elements of a tensor, in row-major order.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Elements {
    Floats(Vec<f32>),
    Ints(Vec<i64>),
}

/// Returns the only tensor of a file.
///
/// # Errors
/// The reason why the file is none of one tensor.
pub(crate) fn tensor(file: &[u8]) -> Result<FileTensor, String> {
    let mut archive = Archive::open(file)?;
    let stored = pickle::tensor(&archive.pickle()?)?;
    archive.tensor(&stored)
}

/// Returns the tensors of the dictionary in a file, by their names.
///
/// # Errors
/// The reason why the file has none.
pub(crate) fn tensors(file: &[u8]) -> Result<BTreeMap<String, FileTensor>, String> {
    let mut archive = Archive::open(file)?;
    let stored = pickle::tensors(&archive.pickle()?)?;
    // Many names of the same elements would let a small file become large tensors.
    let bytes = stored.values().try_fold(0_usize, |sum, it| sum.checked_add(it.bytes()?));
    if bytes.is_none_or(|bytes| bytes > file.len()) {
        return Err("its tensors have more elements than it".to_owned());
    }
    let read =
        |(name, stored): (String, StoredTensor)| Ok::<_, String>((name, archive.tensor(&stored)?));
    stored.into_iter().map(read).collect()
}

/// The archive of a file.
struct Archive<'a> {
    files: ZipArchive<Cursor<&'a [u8]>>,
    /// The folder of all entries.
    root: String,
}

impl<'a> Archive<'a> {
    fn open(file: &'a [u8]) -> Result<Self, String> {
        let broken = |error: zip::result::ZipError| format!("its archive is broken: {error}");
        let mut files = ZipArchive::new(Cursor::new(file)).map_err(broken)?;
        if files.len() > ENTRIES_MAX {
            return Err(format!("its archive has {} entries", files.len()));
        }
        let names: Vec<String> = files.file_names().map(str::to_owned).collect();
        let root = names.iter().find_map(|name| name.strip_suffix("data.pkl"));
        let root =
            root.ok_or("it is an archive without data.pkl, so torch.save did not write it")?;
        if names.contains(&format!("{root}byteorder"))
            && entry(&mut files, &format!("{root}byteorder"))? != b"little"
        {
            return Err("its numbers are big-endian".to_owned());
        }
        let root = root.to_owned();
        Ok(Self { files, root })
    }

    fn pickle(&mut self) -> Result<Vec<u8>, String> {
        entry(&mut self.files, &format!("{}data.pkl", self.root))
    }

    fn tensor(&mut self, stored: &StoredTensor) -> Result<FileTensor, String> {
        let data = entry(&mut self.files, &format!("{}data/{}", self.root, stored.key))?;
        gathered(&data, stored)
    }
}

/// Returns the bytes of an entry. They are stored as they are, so the file has at least as
/// many.
fn entry(archive: &mut ZipArchive<Cursor<&[u8]>>, name: &str) -> Result<Vec<u8>, String> {
    let missing = |error| format!("its archive has no {name}: {error}");
    let mut entry = archive.by_name(name).map_err(missing)?;
    if entry.compression() != CompressionMethod::Stored {
        return Err(format!("{name} in its archive is compressed"));
    }
    let mut bytes = Vec::new();
    let read = entry.read_to_end(&mut bytes);
    read.map_err(|error| format!("{name} in its archive is broken: {error}"))?;
    Ok(bytes)
}

/// Returns the elements of a tensor in row-major order.
fn gathered(data: &[u8], stored: &StoredTensor) -> Result<FileTensor, String> {
    let StoredTensor { dtype, offset, shape, strides, .. } = stored;
    let outside = || format!("its shape {shape:?} reaches beyond its data");
    if shape.len() != strides.len() {
        return Err(outside());
    }
    let count = data.len() / dtype.size();
    let numel = shape.iter().try_fold(1_usize, |numel, size| numel.checked_mul(*size));
    // A stride of 0 would let a small file become a large tensor.
    let numel = numel.filter(|numel| *numel <= count).ok_or_else(outside)?;
    let mut bytes = Vec::with_capacity(numel * dtype.size());
    let mut index = vec![0_usize; shape.len()];
    for _ in 0..numel {
        let steps = index.iter().zip(strides).map(|(index, stride)| index.checked_mul(*stride));
        let steps = steps.chain([Some(*offset)]);
        let place = steps.sum::<Option<usize>>().filter(|place| *place < count);
        let place = place.ok_or_else(outside)? * dtype.size();
        bytes.extend_from_slice(&data[place..place + dtype.size()]);
        for (axis, size) in shape.iter().enumerate().rev() {
            index[axis] += 1;
            if index[axis] < *size {
                break;
            }
            index[axis] = 0;
        }
    }
    Ok(FileTensor { shape: shape.clone(), elements: elements(&bytes, *dtype) })
}

/// Returns the numbers of little-endian bytes.
pub(crate) fn elements(bytes: &[u8], dtype: StoredDtype) -> Elements {
    fn floats<const N: usize>(bytes: &[u8], read: impl Fn([u8; N]) -> f32) -> Elements {
        Elements::Floats(bytes.as_chunks().0.iter().map(|bytes| read(*bytes)).collect())
    }
    fn ints<const N: usize>(bytes: &[u8], read: impl Fn([u8; N]) -> i64) -> Elements {
        Elements::Ints(bytes.as_chunks().0.iter().map(|bytes| read(*bytes)).collect())
    }
    match dtype {
        StoredDtype::F64 => floats(bytes, |bytes| f64::from_le_bytes(bytes) as f32),
        StoredDtype::F32 => floats(bytes, f32::from_le_bytes),
        StoredDtype::F16 => floats(bytes, |bytes| f16::from_le_bytes(bytes).to_f32()),
        StoredDtype::Bf16 => floats(bytes, |bytes| bf16::from_le_bytes(bytes).to_f32()),
        StoredDtype::I64 => ints(bytes, i64::from_le_bytes),
        StoredDtype::I32 => ints(bytes, |bytes| i32::from_le_bytes(bytes).into()),
        StoredDtype::I16 => ints(bytes, |bytes| i16::from_le_bytes(bytes).into()),
        StoredDtype::I8 => ints(bytes, |[byte]| i64::from(byte.cast_signed())),
        StoredDtype::U8 => ints(bytes, |[byte]| byte.into()),
    }
}
