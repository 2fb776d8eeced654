//! The `safetensors` crate is the reference: it writes the files, and decides which are valid.

use std::path::Path;

use proptest::prelude::*;
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};

use super::*;

fn sample() -> Vec<u8> {
    let (a, b) = ([1u8; 24], [2u8; 10]);
    let tensors = [
        ("a", TensorView::new(Dtype::F32, vec![2, 3], &a).unwrap()),
        ("b", TensorView::new(Dtype::BF16, vec![5], &b).unwrap()),
        ("empty", TensorView::new(Dtype::F16, vec![0, 4], &[]).unwrap()),
    ];
    safetensors::serialize(tensors, None).unwrap()
}

fn with_header(json: &str, data: usize) -> Vec<u8> {
    let mut file = (json.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(json.as_bytes());
    file.resize(file.len() + data, 0);
    file
}

fn reason(file: &[u8]) -> String {
    parse(Path::new("x.safetensors"), file).unwrap_err().to_string()
}

#[test]
fn reads_what_safetensors_writes() {
    let file = sample();
    let entries = parse(Path::new("x"), &file).unwrap();
    let oracle = SafeTensors::deserialize(&file).unwrap();
    assert_eq!(entries.len(), oracle.len());
    for (name, entry) in &entries {
        let view = oracle.tensor(name).unwrap();
        assert_eq!(entry.shape, view.shape());
        assert_eq!(&file[entry.range.0..entry.range.1], view.data());
    }
}

#[test]
fn refuses_every_truncation() {
    let file = sample();
    for length in 0..file.len() {
        assert!(parse(Path::new("x"), &file[..length]).is_err(), "{length} bytes");
    }
}

#[test]
fn names_the_tensor_that_is_cut() {
    let file = sample();
    let cut = reason(&file[..file.len() - 1]);
    assert!(cut.contains("truncated: tensor `b`"), "{cut}");
    assert!(cut.contains(&format!("file has {} bytes", file.len() - 1)), "{cut}");
}

#[test]
fn names_the_fault_of_a_header() {
    for (json, data, expected) in [
        ("{", 0, "EOF while parsing"),
        ("[1]", 0, "invalid type"),
        (r#"{"a":{"dtype":"F32","shape":[1]}}"#, 4, "missing field `data_offsets`"),
        (r#"{"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}"#, 4, "tensor `a`"),
        (r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}"#, 4, "does not fill 4 bytes"),
        (r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}}"#, 4, "bytes 4 to 0"),
        (r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}"#, 8, "starts at data byte 4"),
        (r#"{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}"#, 5, "1 bytes after the last"),
        (
            r#"{"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}}"#,
            0,
            "overflows",
        ),
        (
            r#"{"a":{"dtype":"X9","shape":[],"data_offsets":[0,18446744073709551615]}}"#,
            0,
            "truncated: tensor `a`",
        ),
    ] {
        let message = reason(&with_header(json, data));
        assert!(message.contains(expected), "{json}: {message}");
    }
    let huge = reason(&u64::MAX.to_le_bytes());
    assert!(huge.contains("at most 100000000"), "{huge}");
}

proptest! {
    #[test]
    fn never_panics_on_garbage(file in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = parse(Path::new("x"), &file);
    }

    /// With any one byte changed, only files that the reference accepts are accepted.
    #[test]
    fn accepts_only_what_the_reference_accepts(at in 0usize..400, value: u8) {
        let mut file = sample();
        let at = at % file.len();
        file[at] = value;
        if let Ok(entries) = parse(Path::new("x"), &file) {
            let known = entries.values().all(|entry| bits_per_element(&entry.dtype).is_some());
            prop_assert!(!known || SafeTensors::deserialize(&file).is_ok());
        }
    }
}
