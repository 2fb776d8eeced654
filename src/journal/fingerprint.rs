//! The facts about this process on which its tokens depend.

use std::{
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

use playhouse_actors::logic::journal::Fingerprint;
use playhouse_kernels::packed_layout;
use sha2::{Digest, Sha256};

use crate::{config::EngineConfig, engine::LoadedModel, files, model_files};

/// Number of parts of a large file that are hashed. The whole would take as long as a load.
const PARTS: u64 = 16;
const PART_BYTES: u64 = 64 << 10;

/// Returns the fingerprint of a process that serves this model.
///
/// # Errors
/// The system's error for a file of the model, or for the program.
pub(crate) fn fingerprint(config: &EngineConfig, model: &LoadedModel) -> io::Result<Fingerprint> {
    let build = hash(&[files::this_program()?])?;
    let weights = match model_files::is_demo_model(&config.model) {
        true => format!("the demo model of {build}"),
        false => model_hash(&config.model)?,
    };
    // Another tokenizer cuts other texts out of the same tokens.
    let tokenizer = config.tokenizer.as_ref().map(|path| model_hash(path)).transpose()?;
    let numbers = format!(
        "weights {:?}, quantized {:?}, activations {:?}, KV cache {:?}, load format {:?}, \
         tokenizer {tokenizer:?}",
        model.dtype,
        config.quantization,
        config.activation_quantization,
        model.kv_cache_dtype,
        config.load_format,
    );
    Ok(Fingerprint {
        weights,
        numbers,
        build,
        instruction_set: packed_layout().to_string(),
        device: format!("{:?}", model.device_kind),
    })
}

/// Returns a hash of the files of a model.
///
/// # Errors
/// The system's error for one of them.
pub(crate) fn model_hash(model: &Path) -> io::Result<String> {
    hash(&model_paths(model)?)
}

/// Returns the files of a model, in the order of their names.
fn model_paths(model: &Path) -> io::Result<Vec<PathBuf>> {
    if model.is_file() {
        return Ok(vec![model.to_owned()]);
    }
    let mut paths = Vec::new();
    for entry in fs::read_dir(model)? {
        let path = entry?.path();
        let extension = path.extension().and_then(|extension| extension.to_str());
        let is_part = matches!(extension, Some("safetensors" | "json" | "gguf" | "model"));
        if is_part && path.is_file() {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

/// Returns a hash of the names, the lengths and parts of these files.
fn hash(paths: &[PathBuf]) -> io::Result<String> {
    let mut hasher = Sha256::new();
    for path in paths {
        let mut file = files::open(path)?;
        let len = file.metadata()?.len();
        let name = path.file_name().unwrap_or_default();
        hasher.update(name.as_encoded_bytes());
        hasher.update([0]);
        hasher.update(len.to_le_bytes());
        for part in parts(len) {
            hasher.update(read(&mut file, part)?);
        }
    }
    let digest = hasher.finalize();
    Ok(digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect())
}

/// Returns the places of the parts of a file that are hashed: all of a short file.
fn parts(len: u64) -> Vec<u64> {
    if len <= PARTS * PART_BYTES {
        return (0..len.div_ceil(PART_BYTES)).map(|part| part * PART_BYTES).collect();
    }
    let last = len - PART_BYTES;
    (0..PARTS).map(|part| last / (PARTS - 1) * part).chain([last]).collect()
}

fn read(file: &mut File, place: u64) -> io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(place))?;
    let mut part = Vec::new();
    file.take(PART_BYTES).read_to_end(&mut part)?;
    Ok(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_a_file_changes_the_hash() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("model.safetensors");
        let hashed = |content: &[u8]| {
            fs::write(&path, content).unwrap();
            hash(&model_paths(folder.path()).unwrap()).unwrap()
        };
        let short = hashed(b"weights");
        assert_eq!(short.len(), 32);
        assert_ne!(short, hashed(b"weightz"));
        let mut long = vec![7; (PARTS * PART_BYTES) as usize + 12_345];
        let before = hashed(&long);
        *long.last_mut().unwrap() = 8;
        assert_ne!(before, hashed(&long));
        long.push(8);
        assert_ne!(before, hashed(&long));
    }

    #[test]
    fn short_files_are_hashed_whole() {
        assert_eq!(parts(0), [0; 0]);
        assert_eq!(parts(PART_BYTES + 1), [0, PART_BYTES]);
        let long = parts(PARTS * PART_BYTES + 1);
        assert_eq!((long[0], long[long.len() - 1]), (0, (PARTS - 1) * PART_BYTES + 1));
    }
}
