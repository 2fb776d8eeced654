//! BitNet's ternary weights (<https://arxiv.org/abs/2402.17764>): HF `BitLinear` and
//! `AutoBitLinear`.
//!
//! | tensor | shape | dtype |
//! |---|---|---|
//! | `weight` | `[⌈out / 4⌉, in]`: four codes of two bits a byte, the first in the low bits | u8 |
//! | `weight_scale` | `[1]` | float |
//!
//! Code `c` of `i` in byte `r` belongs to row `r + i · ⌈out / 4⌉`, and is the weight
//! `(c − 1) · scale`, or `(c − 1) / scale` with the first class. It becomes a float of the model's
//! dtype at load.

use super::parts::Parts;
use crate::weights::checkpoint::Checkpoint;
use crate::weights::{StoredMatrix, WeightsError};

const SCALE: &str = "weight_scale";
const CODES: &str = "weight";

/// Codes of a byte.
const CODES_PER_BYTE: usize = 4;

/// Returns whether the weight of `module` is stored in this format.
pub(super) fn has(checkpoint: &Checkpoint, module: &str) -> bool {
    checkpoint.has(&format!("{module}.{SCALE}"))
}

/// Reads the weight of a module, if it is stored in this format. Its codes are divided by the scale
/// if `is_divided`, and else multiplied.
pub(super) fn read<'a>(
    mut parts: Parts<'a, '_>,
    is_divided: bool,
) -> Result<Option<StoredMatrix<'a>>, WeightsError> {
    if !parts.has(SCALE) {
        return Ok(None);
    }
    let [out, inputs] = parts.shape;
    let rows = out.div_ceil(CODES_PER_BYTE).max(1);
    let codes = parts.packed(CODES, &[rows, inputs])?;
    let scale: f32 = parts.floats(SCALE, &[1])?.iter().sum();
    let factor = if is_divided { 1.0 / scale } else { scale };
    if !factor.is_finite() {
        return Err(parts.invalid(SCALE, format!("{scale}; expected a finite number")));
    }
    let mut bytes = Vec::with_capacity(out * inputs * size_of::<f32>());
    for row in 0..out {
        let shift = 2 * (row / rows);
        for byte in codes.bytes.iter().skip(row % rows * inputs).take(inputs) {
            let code = (byte >> shift) & 3;
            if code == 3 {
                return Err(parts.invalid(CODES, "the code 3; expected 0, 1 or 2"));
            }
            bytes.extend(((f32::from(code) - 1.0) * factor).to_le_bytes());
        }
    }
    Ok(Some(parts.finish_floats(&codes, bytes)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use playhouse_kernels::WeightDtype;
    use safetensors::{Dtype, tensor::TensorView};
    use tempfile::TempDir;

    use super::*;
    use crate::weights::Quantization;

    /// Reads a matrix `[5, 2]` of these bytes, whose scale is 0.5.
    fn read(bytes: [u8; 4], is_divided: bool) -> Result<Vec<f32>, String> {
        let scale = 0.5_f32.to_le_bytes();
        let views = BTreeMap::from([
            ("m.weight", TensorView::new(Dtype::U8, vec![2, 2], &bytes).unwrap()),
            ("m.weight_scale", TensorView::new(Dtype::F32, vec![1], &scale).unwrap()),
        ]);
        let folder = TempDir::new().unwrap();
        let file = safetensors::serialize(views, None).unwrap();
        std::fs::write(folder.path().join("model.safetensors"), file).unwrap();
        let checkpoint = Checkpoint::open(folder.path()).unwrap();
        let checkpoint = checkpoint.quantized(Some(Quantization::BitNet { is_divided }));
        let matrix = checkpoint.matrix("m", [5, 2]).map_err(|error| error.to_string())?;
        Ok(matrix.values(WeightDtype::F32).view().to_f32())
    }

    /// The rows are those that `unpack_weights` of transformers gives.
    #[test]
    fn rows_are_apart_by_a_quarter_of_the_matrix() {
        // Rows 0, 2 and 4 in the first row of bytes, and rows 1 and 3 in the second one.
        let bytes = [0b00_10_01_00, 0b00_00_10_01, 0b00_00_00_10, 0b00_00_10_10];
        let ternary = [-1.0, 0.0, 1.0, 1.0, 0.0, 1.0, -1.0, 1.0, 1.0, -1.0];
        assert_eq!(read(bytes, false).unwrap(), ternary.map(|x: f32| x * 0.5));
        assert_eq!(read(bytes, true).unwrap(), ternary.map(|x: f32| x * 2.0));
    }

    #[test]
    fn the_fourth_code_is_refused() {
        let error = read([3, 0, 0, 0], false).unwrap_err();
        assert!(error.contains("m.weight") && error.contains("code 3"), "{error}");
    }
}
