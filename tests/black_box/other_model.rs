//! Folders of models, made from that of the demo model.

use std::{fs, path::Path};

use tempfile::TempDir;

const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/demo-model");
const WEIGHTS: &str = "model.safetensors";

/// Returns a copy of the demo model whose weights went through `change`.
fn with_weights(change: impl FnOnce(&mut Vec<u8>)) -> TempDir {
    let copy = TempDir::new().unwrap();
    for entry in fs::read_dir(DEMO).unwrap().map(Result::unwrap) {
        if entry.path().is_file() {
            fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
        }
    }
    let mut weights = fs::read(Path::new(DEMO).join(WEIGHTS)).unwrap();
    change(&mut weights);
    fs::write(copy.path().join(WEIGHTS), weights).unwrap();
    copy
}

/// Returns a model with other weights: those of the last norm have the opposite sign.
pub(crate) fn other() -> TempDir {
    with_weights(|weights| {
        let length = u64::from_le_bytes(weights[..8].try_into().unwrap()) as usize;
        let header: serde_json::Value = serde_json::from_slice(&weights[8..8 + length]).unwrap();
        let norm = &header["model.norm.weight"];
        assert!(norm["dtype"].as_str().unwrap().ends_with("16"), "{norm}");
        let place = |index: usize| norm["data_offsets"][index].as_u64().unwrap() as usize;
        let (begin, end) = (8 + length + place(0), 8 + length + place(1));
        // The sign is the highest bit of the second byte.
        weights[begin..end].chunks_mut(2).for_each(|value| value[1] ^= 0x80);
    })
}

/// Returns a model whose file of weights was cut.
pub(crate) fn broken() -> TempDir {
    with_weights(|weights| weights.truncate(weights.len() / 2))
}
