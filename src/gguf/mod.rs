//! GGUF, the format of llama.cpp: metadata by key, and named tensors, in one file or in parts. The
//! readers of keys and tensors define their meaning: weights, the model's config, the tokenizer.
//!
//! A file is input from outside: every length, offset, count, string and type is checked before it
//! is used.

mod error;
mod ggml_type;
mod header;
mod parts;
mod reader;
mod value;

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use playhouse_kernels::{MappedFile, open_regular};

use crate::model_files::ModelFileError;
pub use error::GgufError;
use header::Header;
pub(crate) use header::TensorInfo;
use reader::Reader;
use value::{Kind, List, Value};

/// The first bytes of a file.
const MAGIC: &[u8] = b"GGUF";

/// The name of the format in errors.
pub(crate) const FORMAT: &str = "GGUF file";

/// Returns whether `path` is a GGUF file, by its name or its first bytes.
#[must_use]
pub(crate) fn is_gguf(path: &Path) -> bool {
    if !path.is_file() {
        return false;
    }
    let mut magic = [0; MAGIC.len()];
    let begins = open_regular(path).and_then(|mut file| file.read_exact(&mut magic));
    let named = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"));
    named || (begins.is_ok() && magic == MAGIC)
}

/// A GGUF file in mapped memory, with its header read and checked.
#[derive(Debug)]
pub(crate) struct GgufFile {
    path: PathBuf,
    map: MappedFile,
    header: Header,
    /// The parts behind the first one.
    parts: Vec<GgufFile>,
}

/// The tensors of one part of a file, in mapped memory.
#[derive(Debug)]
pub(crate) struct MappedPart {
    pub(crate) path: PathBuf,
    pub(crate) map: MappedFile,
    pub(crate) tensors: BTreeMap<String, TensorInfo>,
}

impl GgufFile {
    /// Maps `path`, and the parts behind it if it is the first of several. Reads their headers.
    ///
    /// # Errors
    /// [`GgufError`], also for a part that is not the first.
    pub(crate) fn open(path: &Path) -> Result<Self, GgufError> {
        let mut file = Self::open_alone(path)?;
        file.parts = parts::behind(&file)?;
        Ok(file)
    }

    /// Maps one part.
    fn open_alone(path: &Path) -> Result<Self, GgufError> {
        let map = MappedFile::open(path).map_err(ModelFileError::read(path))?;
        let header = header::parse(path, map.bytes())?;
        Ok(Self { path: path.to_owned(), map, header, parts: Vec::new() })
    }

    fn all_parts(&self) -> impl Iterator<Item = &Self> {
        std::iter::once(self).chain(&self.parts)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the tensor `name`.
    pub(crate) fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.all_parts().find_map(|part| part.header.tensors.get(name))
    }

    /// Returns the bytes of the tensor `name`.
    pub(crate) fn tensor_bytes(&self, name: &str) -> Option<&[u8]> {
        self.all_parts().find_map(|part| {
            let tensor = part.header.tensors.get(name)?;
            part.map.bytes().get(tensor.range.clone())
        })
    }

    /// Returns all tensors, by name within each part.
    pub(crate) fn tensors(&self) -> impl Iterator<Item = (&String, &TensorInfo)> {
        self.all_parts().flat_map(|part| &part.header.tensors)
    }

    /// Returns the parts without their metadata: one for a whole file.
    pub(crate) fn into_parts(self) -> impl Iterator<Item = MappedPart> {
        let Self { path, map, header, parts } = self;
        let first = MappedPart { path, map, tensors: header.tensors };
        let behind = parts.into_iter().map(|Self { path, map, header, .. }| MappedPart {
            path,
            map,
            tensors: header.tensors,
        });
        std::iter::once(first).chain(behind)
    }

    /// Returns all keys of the metadata, in their order.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &String> {
        self.header.metadata.keys()
    }

    /// Returns whether the value under `key` is a list.
    pub(crate) fn is_list(&self, key: &str) -> bool {
        matches!(self.header.metadata.get(key), Some(Value::List(_)))
    }

    /// Returns whether there is a value under `key`.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.header.metadata.contains_key(key)
    }

    /// Returns a number that is not negative.
    pub(crate) fn unsigned(&self, key: &str) -> Result<Option<u64>, GgufError> {
        self.get(key, "an integer from 0", Value::unsigned)
    }

    /// Returns a finite number, integer or not.
    pub(crate) fn number(&self, key: &str) -> Result<Option<f64>, GgufError> {
        self.get(key, "a finite number", |value| value.number().filter(|x| x.is_finite()))
    }

    pub(crate) fn flag(&self, key: &str) -> Result<Option<bool>, GgufError> {
        self.get(key, "true or false", |value| match *value {
            Value::Flag(flag) => Some(flag),
            _ => None,
        })
    }

    pub(crate) fn text(&self, key: &str) -> Result<Option<&str>, GgufError> {
        self.get(key, "a string", |value| match value {
            Value::Text(text) => Some(text.as_str()),
            _ => None,
        })
    }

    /// Returns a list of strings.
    pub(crate) fn texts(&self, key: &str) -> Result<Option<Vec<&str>>, GgufError> {
        self.get(key, "a list of strings", |value| {
            let (list, mut reader) = self.list(value)?;
            let all = (0..list.count).map(|_| reader.text()).collect::<Result<Vec<_>, _>>();
            all.ok().filter(|_| list.kind == Kind::Text)
        })
    }

    /// Returns a list of numbers, integers or not, as f32.
    pub(crate) fn numbers(&self, key: &str) -> Result<Option<Vec<f32>>, GgufError> {
        let numbers = self.scalars(key, "a list of numbers", Value::number)?;
        Ok(numbers.map(|numbers| numbers.into_iter().map(|number| number as f32).collect()))
    }

    /// Returns a list of booleans, which may be stored as the integers 0 and 1.
    pub(crate) fn flags(&self, key: &str) -> Result<Option<Vec<bool>>, GgufError> {
        self.scalars(key, "a list of booleans", |value| match *value {
            Value::Flag(flag) => Some(flag),
            Value::Unsigned(number @ (0 | 1)) => Some(number == 1),
            Value::Signed(number @ (0 | 1)) => Some(number == 1),
            _ => None,
        })
    }

    /// Returns a list of integers.
    pub(crate) fn integers(&self, key: &str) -> Result<Option<Vec<i64>>, GgufError> {
        self.scalars(key, "a list of integers", Value::signed)
    }

    /// Returns a list of integers that are not negative.
    pub(crate) fn unsigned_list(&self, key: &str) -> Result<Option<Vec<u64>>, GgufError> {
        self.scalars(key, "a list of integers from 0", Value::unsigned)
    }

    /// Returns an integer, which may also be stored as a list with an equal value for each layer.
    pub(crate) fn same_in_all_layers(&self, key: &str) -> Result<Option<u64>, GgufError> {
        if !self.is_list(key) {
            return self.unsigned(key);
        }
        let values = self.scalars(key, "a list of integers", Value::unsigned)?.unwrap_or_default();
        match values.first() {
            Some(&first) if values.iter().all(|&value| value == first) => Ok(Some(first)),
            _ => Err(self.unexpected(key, "the same number in all layers")),
        }
    }

    /// Returns the error that `key`, which is required, is absent.
    pub(crate) fn missing(&self, key: &str, expected: impl Into<String>) -> GgufError {
        let (path, key) = (self.path.clone(), key.to_owned());
        GgufError::Missing { path, key, expected: expected.into() }
    }

    /// Returns the error that `key` has a value that is not accepted.
    pub(crate) fn unexpected(&self, key: &str, expected: impl Into<String>) -> GgufError {
        let found = self.header.metadata.get(key).map_or_else(String::new, Value::to_string);
        let (path, key) = (self.path.clone(), key.to_owned());
        GgufError::Metadata { path, key, found, expected: expected.into() }
    }

    fn scalars<T>(
        &self,
        key: &str,
        expected: &str,
        convert: impl Fn(&Value) -> Option<T>,
    ) -> Result<Option<Vec<T>>, GgufError> {
        self.get(key, expected, |value| {
            let (list, mut reader) = self.list(value)?;
            let mut element = || Value::read_scalar(&mut reader, list.kind).ok();
            (0..list.count).map(|_| convert(&element()?)).collect()
        })
    }

    /// Returns a list, and a reader of its elements.
    fn list<'a>(&'a self, value: &'a Value) -> Option<(&'a List, Reader<'a>)> {
        match value {
            Value::List(list) => Some((list, Reader::new(&self.map.bytes()[list.range.clone()]))),
            _ => None,
        }
    }

    fn get<'a, T>(
        &'a self,
        key: &str,
        expected: &str,
        convert: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, GgufError> {
        match self.header.metadata.get(key) {
            None => Ok(None),
            Some(value) => convert(value).map(Some).ok_or_else(|| self.unexpected(key, expected)),
        }
    }
}
