//! bitsandbytes, 4 bits (<https://arxiv.org/abs/2305.14314>) and 8 bits
//! (<https://arxiv.org/abs/2208.07339>).
//!
//! Four bits, in blocks of neighbours of the flattened matrix:
//!
//! | tensor | shape | dtype |
//! |---|---|---|
//! | `weight` | `[out · in / 2, 1]`: two codes a byte, the first in the high half | u8 |
//! | `weight.quant_map` | `[16]`: the value of each code | f32 |
//! | `weight.absmax` | `[blocks]`: the scales, or their codes | f32, u8 |
//! | `weight.nested_quant_map` | `[256]`: the value of each code of a scale | f32 |
//! | `weight.nested_absmax` | the scales of blocks of scales | f32 |
//! | `weight.quant_state.bitsandbytes__nf4`, or `fp4` | JSON with the sizes of blocks | u8 |
//!
//! Eight bits: `weight`, `[out, in]` of i8, and `SCB`, `[out]`, the largest value of each row.
//! `w[o][i] = weight[o][i] · SCB[o] / 127`.
//!
//! Both become floats of the model's dtype at load.

use serde::Deserialize;

use super::parts::Parts;
use crate::weights::checkpoint::Checkpoint;
use crate::weights::{StoredMatrix, WeightsError};

/// The parts that have the state of a matrix of four bits.
const STATES: [&str; 2] =
    ["weight.quant_state.bitsandbytes__nf4", "weight.quant_state.bitsandbytes__fp4"];
const SCALES: &str = "weight.absmax";
const ROW_SCALES: &str = "SCB";

/// The state of a matrix of four bits.
#[derive(Deserialize)]
struct State {
    blocksize: usize,
    shape: Vec<usize>,
    #[serde(default)]
    nested_blocksize: usize,
    #[serde(default)]
    nested_offset: f32,
}

/// Returns whether the weight of `module` is stored in this format.
pub(super) fn has(checkpoint: &Checkpoint, module: &str) -> bool {
    STATES.iter().chain([&ROW_SCALES]).any(|part| checkpoint.has(&format!("{module}.{part}")))
}

/// Reads the weight of a module, if it is stored in this format.
pub(super) fn read<'a>(parts: Parts<'a, '_>) -> Result<Option<StoredMatrix<'a>>, WeightsError> {
    if parts.has(ROW_SCALES) {
        return read_bytes(parts).map(Some);
    }
    match STATES.into_iter().find(|part| parts.has(part)) {
        Some(part) => read_nibbles(parts, part).map(Some),
        None => Ok(None),
    }
}

fn read_bytes<'a>(mut parts: Parts<'a, '_>) -> Result<StoredMatrix<'a>, WeightsError> {
    let [out, inputs] = parts.shape;
    let codes = parts.raw("weight")?;
    if codes.dtype != "I8" {
        return Err(codes.refused("I8"));
    }
    let scales = parts.floats(ROW_SCALES, &[out])?;
    let rows = codes.bytes.chunks(inputs.max(1)).zip(scales);
    let values = rows.flat_map(|(row, scale)| {
        row.iter().map(move |code| f32::from(code.cast_signed()) * (scale / 127.0))
    });
    let bytes = values.flat_map(f32::to_le_bytes).collect();
    Ok(parts.finish_floats(&codes, bytes))
}

fn read_nibbles<'a>(
    mut parts: Parts<'a, '_>,
    state_part: &str,
) -> Result<StoredMatrix<'a>, WeightsError> {
    let [out, inputs] = parts.shape;
    let count = out * inputs;
    let state = read_state(&mut parts, state_part)?;
    if state.shape != [out, inputs] {
        let reason = format!("a matrix {:?}; expected [{out}, {inputs}]", state.shape);
        return Err(parts.invalid(state_part, reason));
    }
    if state.blocksize == 0 || !count.is_multiple_of(2) {
        let reason = format!("{count} elements in blocks of {}", state.blocksize);
        return Err(parts.invalid(state_part, reason));
    }
    let codes = parts.packed("weight", &[count / 2, 1])?;
    let map = parts.floats("weight.quant_map", &[16])?;
    let scales = read_scales(&mut parts, &state, count.div_ceil(state.blocksize))?;
    let nibbles = codes.bytes.iter().flat_map(|byte| [byte >> 4, byte & 0x0F]);
    let values = nibbles.enumerate().map(|(at, code)| {
        // There are 16 values, and a scale for each block.
        map[usize::from(code)] * scales[at / state.blocksize]
    });
    let bytes = values.flat_map(f32::to_le_bytes).collect();
    Ok(parts.finish_floats(&codes, bytes))
}

fn read_state(parts: &mut Parts<'_, '_>, part: &str) -> Result<State, WeightsError> {
    let shape = parts.stored_shape(part).unwrap_or_default();
    let text = parts.packed(part, shape)?.bytes;
    serde_json::from_slice(text).map_err(|error| parts.invalid(part, error.to_string()))
}

/// Reads the scale of each block, which may have eight bits themselves.
fn read_scales(
    parts: &mut Parts<'_, '_>,
    state: &State,
    blocks: usize,
) -> Result<Vec<f32>, WeightsError> {
    const NESTED: &str = "weight.nested_absmax";
    if !parts.has(NESTED) {
        return parts.floats(SCALES, &[blocks]);
    }
    if state.nested_blocksize == 0 {
        return Err(parts.invalid(NESTED, "the state has no `nested_blocksize`"));
    }
    let codes = parts.packed(SCALES, &[blocks])?;
    let map = parts.floats("weight.nested_quant_map", &[256])?;
    let scales = parts.floats(NESTED, &[blocks.div_ceil(state.nested_blocksize)])?;
    let values = codes.bytes.iter().enumerate().map(|(at, code)| {
        // There are 256 values, and a scale for each block of codes.
        map[usize::from(*code)] * scales[at / state.nested_blocksize] + state.nested_offset
    });
    Ok(values.collect())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use playhouse_kernels::WeightDtype;
    use safetensors::{Dtype, tensor::TensorView};
    use tempfile::TempDir;

    use super::*;
    use crate::weights::Quantization;

    /// Reads a matrix `[2, 3]` of the codes 0 to 5 in blocks of 4, whose state is `state`.
    fn read(state: &str) -> Result<Vec<f32>, String> {
        let bytes = |values: &[f32]| -> Vec<u8> {
            values.iter().flat_map(|value| value.to_le_bytes()).collect()
        };
        let map = bytes(&std::array::from_fn::<f32, 16, _>(|code| code as f32));
        let scales = bytes(&[1.0, -2.0]);
        let tensors = [
            ("m.weight", Dtype::U8, vec![3, 1], vec![0x01, 0x23, 0x45]),
            ("m.weight.quant_map", Dtype::F32, vec![16], map),
            ("m.weight.absmax", Dtype::F32, vec![2], scales),
            ("m.weight.quant_state.bitsandbytes__fp4", Dtype::U8, vec![state.len()], state.into()),
        ];
        let views: BTreeMap<&str, TensorView<'_>> = tensors
            .iter()
            .map(|(name, dtype, shape, data)| {
                (*name, TensorView::new(*dtype, shape.clone(), data).unwrap())
            })
            .collect();
        let folder = TempDir::new().unwrap();
        let file = safetensors::serialize(views, None).unwrap();
        std::fs::write(folder.path().join("model.safetensors"), file).unwrap();
        let checkpoint = Checkpoint::open(folder.path()).unwrap();
        let checkpoint = checkpoint.quantized(Some(Quantization::BitsAndBytes));
        let matrix = checkpoint.matrix("m", [2, 3]).map_err(|error| error.to_string())?;
        Ok(matrix.values(WeightDtype::F32).view().to_f32())
    }

    #[test]
    fn the_first_code_of_a_byte_is_in_its_high_half() {
        let values = read(r#"{"quant_type": "fp4", "blocksize": 4, "shape": [2, 3]}"#);
        assert_eq!(values, Ok(vec![0.0, 1.0, 2.0, 3.0, -8.0, -10.0]));
    }

    #[test]
    fn a_broken_state_is_refused_by_its_name() {
        for (state, expected) in [
            ("{", "EOF"),
            (r#"{"blocksize": 0, "shape": [2, 3]}"#, "blocks of 0"),
            (r#"{"blocksize": 4, "shape": [3, 2]}"#, "[3, 2]"),
            (r#"{"blocksize": 4}"#, "shape"),
            (r#"{"blocksize": 2, "shape": [2, 3]}"#, "has shape [2]"),
        ] {
            let error = read(state).unwrap_err();
            assert!(error.contains("m.weight.") && error.contains(expected), "{error}");
        }
    }
}
