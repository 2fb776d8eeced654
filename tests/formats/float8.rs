//! Matrices of 8-bit floats, value by value, as torch and transformers read them.

use std::fs;

use playhouse::weights::{Checkpoint, MatrixElements, Quantization};
use playhouse_kernels::WeightDtype;
use safetensors::SafeTensors;

use crate::fixture;

/// The block of the matrices whose scales do not give it.
const BLOCK: Option<[usize; 2]> = Some([4, 4]);

fn checkpoint(block: Option<[usize; 2]>) -> Checkpoint {
    let checkpoint = Checkpoint::open(&fixture("float8")).unwrap();
    checkpoint.quantized(Some(Quantization::Float8 { block }))
}

#[test]
fn float8_matrices_decode_as_in_torch() {
    let expected = fs::read(fixture("float8").join("expected.safetensors")).unwrap();
    let expected = SafeTensors::deserialize(&expected).unwrap();
    assert_eq!(expected.len(), 8);
    for (name, expected) in expected.iter() {
        let (words, _) = expected.data().as_chunks::<4>();
        let values: Vec<f32> = words.iter().map(|word| f32::from_le_bytes(*word)).collect();
        let shape = [expected.shape()[0], expected.shape()[1]];
        // The number of scales gives the size of whole blocks.
        let blocks = if name == "partial" { vec![BLOCK] } else { vec![BLOCK, None] };
        for block in blocks.into_iter().filter(|block| block.is_none() || name != "rows") {
            let checkpoint = checkpoint(block);
            let matrix = checkpoint.matrix(name, shape).unwrap();
            assert!(matches!(matrix.elements, MatrixElements::Dense(_)), "{name}");
            assert_eq!(matrix.values(WeightDtype::F32).view().to_f32(), values, "{name}");
        }
        let compressed = Checkpoint::open(&fixture("float8")).unwrap();
        let compressed = compressed.quantized(Some(Quantization::CompressedTensors));
        if name != "partial" {
            let matrix = compressed.matrix(name, shape).unwrap();
            assert_eq!(matrix.values(WeightDtype::F32).view().to_f32(), values, "{name}");
        }
    }
}

#[test]
fn scales_that_do_not_fit_are_refused_by_tensor() {
    let refusal =
        |block, name: &str, shape| checkpoint(block).matrix(name, shape).unwrap_err().to_string();
    for (error, expected) in [
        (refusal(None, "partial", [7, 10]), "[2, 3] scales of a matrix [7, 10]"),
        (
            refusal(Some([4, 8]), "blocks", [8, 12]),
            "`blocks.weight_scale_inv` has shape [2, 3], but by config.json it should be [2, 2]",
        ),
        (
            refusal(BLOCK, "blocks", [8, 16]),
            "`blocks.weight_scale_inv` has shape [2, 3], but by config.json it should be [2, 4]",
        ),
        (refusal(BLOCK, "absent", [8, 12]), "tensor `absent.weight` of shape [8, 12] is missing"),
    ] {
        assert!(error.contains(expected), "{error}");
    }
}

/// A checkpoint whose config names no quantization has no floats of 8 bits.
#[test]
fn float8_without_a_format_is_refused() {
    let checkpoint = Checkpoint::open(&fixture("float8")).unwrap();
    let error = checkpoint.matrix("blocks", [8, 12]).unwrap_err().to_string();
    assert!(error.contains("tensor `blocks.weight` has dtype F8_E4M3"), "{error}");
}
