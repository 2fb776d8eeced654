//! Tensors in a GGUF file that its metadata does not use.

use std::fs;

use playhouse::model::{Dtype, LoadOptions, load_model};
use tempfile::TempDir;

use crate::fixture;

/// The place of the number of tensors, after magic and version.
const COUNT_AT: usize = 4 + 4;
/// The alignment of tensors, in bytes.
const ALIGNMENT: usize = 32;
/// Values of the added tensor.
const LENGTH: usize = 8;
/// The number of the type F32.
const F32: u32 = 0;

/// The file's last tensor.
const LAST: &[u8] = b"rope_freqs.weight";

/// Returns the bytes up to the end of the last tensor's description: name, one dimension, type and
/// place.
fn header_len(file: &[u8]) -> usize {
    let at = file.windows(LAST.len()).rposition(|window| window == LAST).unwrap();
    at + LAST.len() + 4 + 8 + 4 + 8
}

/// Loads a llama file with one tensor more, whose elements are all `value`.
fn load_with(name: &str, value: f32) -> Result<(), String> {
    let file = fs::read(fixture("llama.gguf")).unwrap();
    let (header, rest) = file.split_at(header_len(&file));
    let data = &rest[header.len().next_multiple_of(ALIGNMENT) - header.len()..];
    let mut added = header.to_vec();
    let count = u64::from_le_bytes(header[COUNT_AT..][..8].try_into().unwrap()) + 1;
    added[COUNT_AT..][..8].copy_from_slice(&count.to_le_bytes());
    added.extend((name.len() as u64).to_le_bytes());
    added.extend(name.as_bytes());
    added.extend(1_u32.to_le_bytes());
    added.extend((LENGTH as u64).to_le_bytes());
    added.extend(F32.to_le_bytes());
    let offset = data.len().next_multiple_of(ALIGNMENT);
    added.extend((offset as u64).to_le_bytes());
    added.resize(added.len().next_multiple_of(ALIGNMENT), 0);
    let data_start = added.len();
    added.extend(data);
    added.resize(data_start + offset, 0);
    added.extend([value; LENGTH].into_iter().flat_map(f32::to_le_bytes));
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("more.gguf");
    fs::write(&path, added).unwrap();
    let options = LoadOptions { dtype: Dtype::Auto, max_model_len: Some(64), ..Default::default() };
    load_model(&path, &options, &mut |_| {}).map(drop).map_err(|error| error.to_string())
}

#[test]
fn tensors_of_the_decoder_that_would_be_left_out_are_refused() {
    for name in [
        "blk.0.attn_q_norm.weight",
        "blk.0.attn_k.bias",
        "blk.0.ffn_gate_exps.weight",
        "blk.7.ffn_up.weight",
    ] {
        let message = load_with(name, 1.0).unwrap_err();
        let expected =
            format!("more.gguf: tensor `{name}` is not used: the model that the metadata");
        assert!(message.contains(&expected), "{message}");
    }
}

#[test]
fn tensors_that_change_no_result_are_left_out() {
    assert_eq!(load_with("v.patch_embd.weight", 1.0), Ok(()));
    assert_eq!(load_with("blk.0.attn_k.bias", 0.0), Ok(()));
}
