//! MXFP4 of gpt-oss (OCP Microscaling Formats, version 1.0; transformers' `integrations/mxfp4.py`):
//! the matrices of all experts in two tensors.
//!
//! | tensor | shape | dtype |
//! |---|---|---|
//! | `{name}_blocks` | `[count, out, in / 32, 16]`: two E2M1 a byte, the first in the low half | u8 |
//! | `{name}_scales` | `[count, out, in / 32]`: the exponent of 2, plus 127 (E8M0) | u8 |
//!
//! `w[o][i] = e2m1[o][i] · 2^(scale[o][i / 32] - 127)`. A dense tensor `{name}` would be
//! `[count, in, out]`.

use playhouse_kernels::{Codes, Offsets, QuantizedMatrix};

use super::parts::e8m0;
use crate::weights::checkpoint::Checkpoint;
use crate::weights::matrix::MatrixElements;
use crate::weights::{StoredMatrix, WeightsError};

/// Inputs that share a scale.
const GROUP: usize = 32;
/// The scale that stands for no number.
const NAN: u8 = 0xFF;

/// Returns whether the tensor `name` is stored in this format.
pub(super) fn has(checkpoint: &Checkpoint, name: &str) -> bool {
    checkpoint.has(&format!("{name}_blocks"))
}

/// Reads matrix `index` of `count` matrices `[out, in]`.
pub(super) fn read<'a>(
    checkpoint: &'a Checkpoint,
    name: &str,
    (index, count): (usize, usize),
    [out, inputs]: [usize; 2],
) -> Result<StoredMatrix<'a>, WeightsError> {
    let (blocks, scales) = (format!("{name}_blocks"), format!("{name}_scales"));
    let invalid = |tensor: &str, reason: String| WeightsError::Quantized {
        path: checkpoint.path_of(tensor).to_owned(),
        tensor: tensor.to_owned(),
        reason,
    };
    if !inputs.is_multiple_of(GROUP) {
        return Err(invalid(&blocks, format!("{inputs} inputs; expected a multiple of {GROUP}")));
    }
    let groups = inputs / GROUP;
    let part = |tensor: &str, shape: &[usize]| {
        let raw = checkpoint.raw(tensor, shape)?;
        match raw.dtype {
            "U8" => {
                let size = raw.bytes.len() / count;
                Ok(&raw.bytes[index * size..][..size])
            }
            _ => Err(raw.refused("U8")),
        }
    };
    let codes = part(&blocks, &[count, out, groups, GROUP / 2])?;
    let exponents = part(&scales, &[count, out, groups])?;
    if exponents.contains(&NAN) {
        return Err(invalid(&scales, format!("a scale of {NAN}, which is no number")));
    }
    let matrix = QuantizedMatrix::new(
        [out, inputs],
        GROUP,
        Codes::E2M1(codes.to_vec()),
        exponents.iter().map(|exponent| e8m0(*exponent)).collect(),
        Offsets::None,
        None,
    );
    Ok(StoredMatrix {
        elements: MatrixElements::Quantized(
            matrix.map_err(|source| checkpoint.no_matrix(name, source))?,
        ),
        tensor_count: 2,
        size_bytes: (codes.len() + exponents.len()) as u64,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use playhouse_kernels::WeightDtype;
    use safetensors::{Dtype, tensor::TensorView};
    use tempfile::TempDir;

    use super::*;
    use crate::weights::Quantization;

    const NAME: &str = "experts.down_proj";

    /// Reads matrix 1 of a tensor of 2 matrices `[1, 32]`, stored as `blocks` and `scales`.
    fn read_second(
        blocks: (&[usize], Dtype),
        scales: &[u8; 2],
        inputs: usize,
    ) -> Result<Vec<f32>, WeightsError> {
        // Code `i` has place `i`, and again after the last.
        let row: Vec<u8> = (0..16).map(|i| (2 * i % 16) | ((2 * i + 1) % 16) << 4).collect();
        let codes = [vec![0; 16], row].concat();
        let tensors = BTreeMap::from([
            (format!("{NAME}_blocks"), TensorView::new(blocks.1, blocks.0.to_vec(), &codes)),
            (format!("{NAME}_scales"), TensorView::new(Dtype::U8, vec![2, 1, 1], scales)),
        ]);
        let tensors = tensors.into_iter().map(|(name, view)| (name, view.unwrap()));
        let folder = TempDir::new().unwrap();
        let file = safetensors::serialize(tensors, None).unwrap();
        std::fs::write(folder.path().join("model.safetensors"), file).unwrap();
        let checkpoint = Checkpoint::open(folder.path()).unwrap();
        let checkpoint = checkpoint.quantized(Some(Quantization::Mxfp4));
        let matrix = checkpoint.fused_matrix(NAME, 1, 2, [1, inputs])?;
        Ok(matrix.values(WeightDtype::F32).view().to_f32())
    }

    #[test]
    fn codes_and_exponents_make_numbers() {
        let row = read_second((&[2, 1, 1, 16], Dtype::U8), &[0, 128], 32).unwrap();
        let positive = [0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0];
        assert_eq!(row[..8], positive);
        assert_eq!(row[8..16], positive.map(|x| -x));
        assert_eq!(row[16..], row[..16]);
    }

    #[test]
    fn broken_tensors_are_refused_with_their_names() {
        let refusal =
            |blocks, scales, inputs| read_second(blocks, scales, inputs).unwrap_err().to_string();
        let good: (&[usize], _) = (&[2, 1, 1, 16], Dtype::U8);
        let error = refusal(good, &[0, 255], 32);
        assert!(error.contains("experts.down_proj_scales") && error.contains("255"), "{error}");
        let error = refusal(good, &[0, 0], 40);
        assert!(error.contains("experts.down_proj_blocks") && error.contains("40"), "{error}");
        let error = refusal(good, &[0, 0], 64);
        assert!(error.contains("[2, 1, 2, 16]") && error.contains("[2, 1, 1, 16]"), "{error}");
        let error = refusal((&[2, 1, 1, 16], Dtype::I8), &[0, 0], 32);
        assert!(error.contains("I8") && error.contains("U8"), "{error}");
    }
}
