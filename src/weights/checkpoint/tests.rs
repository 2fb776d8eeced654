//! Checkpoints of one file and of several, whole and broken.

use std::fs;

use safetensors::tensor::{Dtype, TensorView};
use tempfile::TempDir;

use super::open::{INDEX_FILE, SINGLE_FILE};
use super::*;

fn file(tensors: &[(&str, Dtype, &[usize])]) -> Vec<u8> {
    let zeros = vec![0u8; 4096];
    let views = tensors.iter().map(|(name, dtype, shape)| {
        let bytes = shape.iter().product::<usize>() * dtype.bitsize() / 8;
        (*name, TensorView::new(*dtype, shape.to_vec(), &zeros[..bytes]).unwrap())
    });
    safetensors::serialize(views, None).unwrap()
}

fn folder(files: &[(&str, &[u8])]) -> TempDir {
    let folder = TempDir::new().unwrap();
    for (name, bytes) in files {
        fs::write(folder.path().join(name), bytes).unwrap();
    }
    folder
}

fn index(weight_map: &[(&str, &str)]) -> Vec<u8> {
    let map: BTreeMap<_, _> = weight_map.iter().copied().collect();
    serde_json::to_vec(&serde_json::json!({ "metadata": {}, "weight_map": map })).unwrap()
}

fn open_error(files: &[(&str, &[u8])]) -> String {
    Checkpoint::open(folder(files).path()).unwrap_err().to_string()
}

#[test]
fn finds_tensors_across_shards() {
    let (a, b) = (file(&[("a", Dtype::F32, &[2, 2])]), file(&[("b", Dtype::BF16, &[3])]));
    let index = index(&[("a", "1.safetensors"), ("b", "2.safetensors")]);
    let folder = folder(&[("1.safetensors", &a), ("2.safetensors", &b), (INDEX_FILE, &index)]);
    let checkpoint = Checkpoint::open(folder.path()).unwrap();
    assert_eq!(checkpoint.tensor_count(), 2);
    assert_eq!(checkpoint.size_bytes(), (a.len() + b.len()) as u64);
    assert_eq!(checkpoint.tensor("a", &[2, 2]).unwrap().dtype(), StoredDtype::F32);
    let b = checkpoint.tensor("b", &[3]).unwrap();
    assert_eq!((b.dtype(), b.size_bytes()), (StoredDtype::Bf16, 6));
    assert!(b.path().ends_with("2.safetensors"));
}

#[test]
fn norms_are_found_by_their_names_of_tensorflow() {
    let names = ["bert.encoder.LayerNorm.gamma", "bert.encoder.LayerNorm.beta", "bert.x.gamma"];
    let bytes = file(&names.map(|name| (name, Dtype::F32, &[3][..])));
    let folder = folder(&[(SINGLE_FILE, &bytes)]);
    let checkpoint = Checkpoint::open(folder.path()).unwrap().of_base_model("bert");
    let mut known: Vec<_> = checkpoint.names().collect();
    known.sort();
    let usual = ["bert.encoder.LayerNorm.bias", "bert.encoder.LayerNorm.weight", "bert.x.gamma"];
    assert_eq!(known, usual);
    for name in usual {
        assert!(checkpoint.tensor(name, &[3]).is_ok(), "{name}");
    }
    assert!(checkpoint.tensor("bert.decoder.LayerNorm.weight", &[3]).is_err());
}

#[test]
fn names_file_tensor_and_both_shapes() {
    let bytes = file(&[("a", Dtype::F32, &[2, 2]), ("ids", Dtype::I64, &[1])]);
    let folder = folder(&[(SINGLE_FILE, &bytes)]);
    let checkpoint = Checkpoint::open(folder.path()).unwrap();
    let error = |name, shape| checkpoint.tensor(name, shape).unwrap_err().to_string();
    let path = folder.path().join(SINGLE_FILE).display().to_string();
    assert_eq!(
        error("a", &[2, 3]),
        format!("{path}: tensor `a` has shape [2, 2], but by config.json it should be [2, 3]")
    );
    assert_eq!(error("b", &[4]), format!("{path}: tensor `b` of shape [4] is missing"));
    assert_eq!(
        error("ids", &[1]),
        format!("{path}: tensor `ids` has dtype I64; accepted here: F32, F16 and BF16")
    );
}

#[test]
fn names_the_fault_of_the_folder() {
    let good = file(&[("a", Dtype::F32, &[2])]);
    assert!(open_error(&[]).contains("expected model.safetensors or"));
    assert!(open_error(&[(INDEX_FILE, b"{")]).contains("not a valid safetensors index"));
    assert!(open_error(&[(INDEX_FILE, b"{}")]).contains("missing field `weight_map`"));
    let error = open_error(&[(INDEX_FILE, &index(&[("a", "1.safetensors")]))]);
    assert!(error.contains("tensor `a` is in shard 1.safetensors, which is not in"), "{error}");
    let error = open_error(&[(INDEX_FILE, &index(&[("a", "../1.safetensors")]))]);
    assert!(error.contains("not a plain file name"), "{error}");
    let cut = &good[..good.len() - 1];
    let error = open_error(&[("1.st", cut), (INDEX_FILE, &index(&[("a", "1.st")]))]);
    assert!(error.contains("1.st: truncated: tensor `a`"), "{error}");
}

#[test]
fn a_shard_without_its_tensor_is_named() {
    let bytes = file(&[("a", Dtype::F32, &[2])]);
    let index = index(&[("a", "1.st"), ("b", "1.st")]);
    let folder = folder(&[("1.st", &bytes), (INDEX_FILE, &index)]);
    let checkpoint = Checkpoint::open(folder.path()).unwrap();
    let error = checkpoint.tensor("b", &[1]).unwrap_err().to_string();
    assert!(error.contains("1.st: tensor `b`"), "{error}");
}

#[test]
fn a_folder_in_place_of_a_file_is_an_error() {
    let folder = TempDir::new().unwrap();
    fs::create_dir(folder.path().join(SINGLE_FILE)).unwrap();
    let error = Checkpoint::open(folder.path()).unwrap_err().to_string();
    assert!(error.contains("it is a folder; expected a regular file"), "{error}");
}
