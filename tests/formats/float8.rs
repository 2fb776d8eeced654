//! Matrices of 8-bit floats, value by value, as torch, transformers and compressed-tensors read
//! them.

use std::fs;

use playhouse::weights::{Checkpoint, MatrixElements, Quantization, ScaleSharing};
use playhouse_kernels::WeightDtype;
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};
use tempfile::TempDir;

use crate::fixture;

const BLOCKS: &[ScaleSharing] = &[ScaleSharing::Block([4, 4])];
/// A config without the size of blocks.
const NO_BLOCKS: &[ScaleSharing] = &[ScaleSharing::Tensor, ScaleSharing::Row];

fn checkpoint(sharing: &[ScaleSharing]) -> Checkpoint {
    let sharing = sharing.to_vec();
    Checkpoint::open(&fixture("float8")).unwrap().quantized(Some(Quantization::Float8 { sharing }))
}

#[test]
fn float8_matrices_decode_as_in_torch() {
    let expected = fs::read(fixture("float8").join("expected.safetensors")).unwrap();
    let expected = SafeTensors::deserialize(&expected).unwrap();
    assert_eq!(expected.len(), 12);
    for (name, expected) in expected.iter() {
        let (words, _) = expected.data().as_chunks::<4>();
        let values: Vec<f32> = words.iter().map(|word| f32::from_le_bytes(*word)).collect();
        let has_blocks =
            !["one", "one_element", "rows", "stacked_ones", "stacked_rows"].contains(&name);
        let sharing = if has_blocks { BLOCKS } else { NO_BLOCKS };
        let both = [BLOCKS, NO_BLOCKS].concat();
        let mixed = Quantization::CompressedTensors { sharing: both };
        let mixed = Checkpoint::open(&fixture("float8")).unwrap().quantized(Some(mixed));
        for checkpoint in [checkpoint(sharing), mixed] {
            let matrices = match *expected.shape() {
                [count, out, inputs] => (0..count)
                    .map(|index| checkpoint.matrix_of(name, index, [count, out, inputs]).unwrap())
                    .collect(),
                [out, inputs] => vec![checkpoint.matrix(name, [out, inputs]).unwrap()],
                _ => unreachable!("{name}"),
            };
            let mut read = Vec::new();
            for matrix in matrices {
                assert!(matches!(matrix.elements, MatrixElements::Dense(_)), "{name}");
                read.extend(matrix.values(WeightDtype::F32).view().to_f32());
            }
            assert_eq!(read, values, "{name}");
        }
    }
}

/// Reads a matrix of `codes` with four scales in blocks `[4, 2]`.
fn read(codes: &[u8; 18], dtype: Dtype, scales: &[u8]) -> Result<Vec<f32>, String> {
    let sharing = vec![ScaleSharing::Block([4, 2])];
    let tensors = [
        ("m.weight", TensorView::new(Dtype::F8_E4M3, vec![6, 3], codes).unwrap()),
        ("m.weight_scale_inv", TensorView::new(dtype, vec![2, 2], scales).unwrap()),
    ];
    let folder = TempDir::new().unwrap();
    let bytes = safetensors::serialize(tensors, None).unwrap();
    fs::write(folder.path().join("model.safetensors"), bytes).unwrap();
    let checkpoint = Checkpoint::open(folder.path()).unwrap();
    let checkpoint = checkpoint.quantized(Some(Quantization::Float8 { sharing }));
    let matrix = checkpoint.matrix("m", [6, 3]).map_err(|error| error.to_string())?;
    Ok(matrix.values(WeightDtype::F32).view().to_f32())
}

fn floats(values: [f32; 4]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// The code of 1.
const ONE: u8 = 0x38;

/// Six rows in blocks of four, then of two. Divided by two scales, they would be three and three.
#[test]
fn the_last_block_has_the_rest() {
    let values = read(&[ONE; 18], Dtype::F32, &floats([1.0, 10.0, 100.0, 1000.0])).unwrap();
    assert_eq!(values[..12], [1.0, 1.0, 10.0].repeat(4));
    assert_eq!(values[12..], [100.0, 100.0, 1000.0].repeat(2));
}

#[test]
fn codes_and_scales_that_are_no_numbers_are_refused_by_tensor() {
    let refusal = |dtype, scales: &[u8]| read(&[ONE; 18], dtype, scales).unwrap_err();
    for (error, expected) in [
        (refusal(Dtype::F32, &floats([1.0, f32::NAN, 1.0, 1.0])), "scale 1 is NaN"),
        (refusal(Dtype::F32, &floats([1.0, 1.0, 1.0, f32::INFINITY])), "scale 3 is inf"),
        (refusal(Dtype::F32, &floats([f32::NEG_INFINITY; 4])), "scale 0 is -inf"),
        (refusal(Dtype::BF16, &[0x80, 0x3F, 0xC0, 0x7F, 0, 0, 0, 0]), "scale 1 is NaN"),
        (refusal(Dtype::U8, &[127, 254, 255, 0]), "scale 2 is NaN"),
        (refusal(Dtype::F8_E8M0, &[127, 254, 0, 255]), "scale 3 is NaN"),
    ] {
        assert!(error.contains("model.safetensors: tensor `m.weight_scale_inv`: "), "{error}");
        assert!(error.ends_with(&format!("{expected}; expected a finite number")), "{error}");
    }
    assert!(read(&[ONE; 18], Dtype::F8_E8M0, &[127, 254, 0, 1]).is_ok());
    for code in [0x7F, 0xFF] {
        let mut codes = [ONE; 18];
        codes[16] = code;
        let error = read(&codes, Dtype::F32, &floats([1.0; 4])).unwrap_err();
        assert!(error.ends_with("tensor `m.weight`: row 5 has a code of NaN"), "{error}");
    }
}

#[test]
fn scales_that_do_not_fit_are_refused_by_tensor() {
    let refusal = |sharing: &[_], name: &str, shape| {
        checkpoint(sharing).matrix(name, shape).unwrap_err().to_string()
    };
    for (error, expected) in [
        (
            refusal(NO_BLOCKS, "partial", [6, 9]),
            "tensor `partial.weight_scale_inv`: scales [2, 3] of a matrix [6, 9]; config.json gives \
             one scale or one scale a row: expected one of [], [1], [1, 1], [6, 1], [6]",
        ),
        (
            refusal(&[ScaleSharing::Block([3, 3])], "blocks", [8, 12]),
            "`blocks.weight_scale_inv` has shape [2, 3], but by config.json it should be [3, 4]",
        ),
        (
            refusal(&[ScaleSharing::Block([4, 8])], "blocks", [8, 12]),
            "`blocks.weight_scale_inv` has shape [2, 3], but by config.json it should be [2, 2]",
        ),
        (
            refusal(BLOCKS, "blocks", [8, 16]),
            "`blocks.weight_scale_inv` has shape [2, 3], but by config.json it should be [2, 4]",
        ),
        (
            refusal(BLOCKS, "one", [8, 12]),
            "`one.weight_scale` has shape [], but by config.json it should be [2, 3]",
        ),
        (refusal(BLOCKS, "absent", [8, 12]), "tensor `absent.weight` of shape [8, 12] is missing"),
    ] {
        assert!(error.contains(expected), "{error}");
    }
    let error = checkpoint(BLOCKS).matrix_of("stacked", 0, [3, 6, 5]).unwrap_err().to_string();
    let expected = "`stacked.weight_scale_inv` has shape [3, 2, 3], but by config.json it should be \
        [3, 2, 2]";
    assert!(error.contains(expected), "{error}");
}

/// A checkpoint whose config names no quantization has no floats of 8 bits.
#[test]
fn float8_without_a_format_is_refused() {
    let checkpoint = Checkpoint::open(&fixture("float8")).unwrap();
    let error = checkpoint.matrix("blocks", [8, 12]).unwrap_err().to_string();
    assert!(error.contains("tensor `blocks.weight` has dtype F8_E4M3"), "{error}");
}
