//! A GGUF file in parts, as `llama-gguf-split` writes them: `name-00001-of-00003.gguf`. The first
//! one has the metadata. Each has a header of its own, and tensors.

use super::{FORMAT, GgufError, GgufFile};
use crate::model_files::ModelFileError;

const COUNT: &str = "split.count";
/// The place of a part, from 0.
const NUMBER: &str = "split.no";
const NUM_TENSORS: &str = "split.tensors.count";

/// Opens the parts behind the first one.
///
/// # Errors
/// [`GgufError`] if `first` is another part, or if the parts do not belong together.
pub(super) fn behind(first: &GgufFile) -> Result<Vec<GgufFile>, GgufError> {
    let count = first.unsigned(COUNT)?.unwrap_or(1);
    if count <= 1 {
        return Ok(Vec::new());
    }
    if first.unsigned(NUMBER)? != Some(0) {
        return Err(first.unexpected(NUMBER, "0: the model has the path of its first part"));
    }
    let end = format!("-00001-of-{count:05}.gguf");
    let name = first.path().file_name().and_then(|name| name.to_str());
    let Some(begin) = name.and_then(|name| name.strip_suffix(&end)) else {
        return Err(first.unexpected(COUNT, format!("a file whose name ends in `{end}`")));
    };
    let mut parts: Vec<GgufFile> = Vec::new();
    for number in 1..count {
        let name = format!("{begin}-{:05}-of-{count:05}.gguf", number + 1);
        let part = GgufFile::open_alone(&first.path().with_file_name(name))?;
        for (key, expected) in [(COUNT, count), (NUMBER, number)] {
            if part.unsigned(key)? != Some(expected) {
                return Err(part.unexpected(key, expected.to_string()));
            }
        }
        let earlier = || std::iter::once(first).chain(&parts);
        let is_there =
            |name: &&String| earlier().any(|part| part.header.tensors.contains_key(name.as_str()));
        if let Some(name) = part.header.tensors.keys().find(is_there) {
            let reason = format!("tensor `{name}` is in an earlier part, too");
            return Err(ModelFileError::invalid(part.path(), FORMAT)(reason).into());
        }
        parts.push(part);
    }
    let num_tensors: usize =
        std::iter::once(first).chain(&parts).map(|part| part.header.tensors.len()).sum();
    match first.unsigned(NUM_TENSORS)? {
        Some(expected) if expected != num_tensors as u64 => {
            Err(first.unexpected(NUM_TENSORS, format!("{num_tensors}, as in all parts")))
        }
        _ => Ok(parts),
    }
}
