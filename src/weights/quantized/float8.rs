//! Weights as 8-bit floats (E4M3, <https://arxiv.org/abs/2209.05433>) with scales: those of
//! DeepSeek V3 (HF `FineGrainedFP8Config`), and those of compressed-tensors (`float-quantized`).
//!
//! | tensor | shape | dtype |
//! |---|---|---|
//! | `weight` | `[out, in]` | F8_E4M3 |
//! | `weight_scale_inv`, or `weight_scale` | see below | f16, bf16, f32, or exponents of two |
//!
//! | scales | shape |
//! |---|---|
//! | of blocks | `[out / height, in / width]`, both rounded up: the last blocks may be partial |
//! | of rows | `[out, 1]` or `[out]` |
//! | one | `[]`, `[1]` or `[1, 1]` |
//!
//! Where a module has the matrices of all experts, both tensors have one more dimension, the first.
//! The config tells which elements share a scale. It is never derived from the number of scales: 8
//! scales of 960 rows are those of 128 rows, and the last one is that of 64.
//!
//! `w[o][i] = weight[o][i] · scale[o / height][i / width]`, computed in f32 and then rounded to the
//! model's dtype. Scales for activations are not needed: activations stay floats.

use rayon::prelude::*;

use super::parts::Parts;
use super::sharing::{ScaleSharing, listed};
use crate::weights::{StoredMatrix, WeightsError};

/// The type of the codes in safetensors files.
pub(super) const DTYPE: &str = "F8_E4M3";

/// The bits of NaN, below the sign.
const NAN: u8 = 0x7F;

/// The scales of one matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Scales {
    /// Rows and columns of scales.
    grid: [usize; 2],
    /// Rows and columns of the elements that share one.
    block: [usize; 2],
    /// Whether each matrix of a module of experts has its own.
    is_sliced: bool,
}

/// Reads the weight of a module, if it has 8-bit floats. `sharing` lists what the config allows.
pub(super) fn read<'a>(
    mut parts: Parts<'a, '_>,
    sharing: &[ScaleSharing],
) -> Result<Option<StoredMatrix<'a>>, WeightsError> {
    if !parts.is_of("weight", DTYPE) {
        return Ok(None);
    }
    let shape = parts.shape;
    let part = if parts.has("weight_scale") { "weight_scale" } else { "weight_scale_inv" };
    let forms = forms(sharing, shape, parts.count());
    let stored = parts.stored_shape(part).map(<[usize]>::to_vec);
    let found = forms.iter().find(|(shape, _)| Some(shape) == stored.as_ref());
    let (stored, Scales { grid, block, is_sliced }) = match (found, &forms[..], &stored) {
        (Some(found), ..) => found,
        // Reading it reports the only shape, and that of the file.
        (None, [only], _) | (None, [only, ..], None) => only,
        (None, _, stored) => {
            let expected: Vec<String> =
                forms.iter().map(|(shape, _)| format!("{shape:?}")).collect();
            let (stored, expected) = (stored.as_deref().unwrap_or_default(), expected.join(", "));
            let by_config = listed(sharing);
            let reason = format!(
                "scales {stored:?} of a matrix {shape:?}; config.json gives {by_config}: expected \
                 one of {expected}"
            );
            return Err(parts.invalid(part, reason));
        }
    };
    let scales = parts.scales(part, stored, *is_sliced)?;
    let codes = parts.raw("weight")?;
    let values = table();
    let mut bytes = vec![0; size_of::<f32>() * shape[0] * shape[1]];
    let width = shape[1].max(1);
    let rows = bytes.par_chunks_mut(size_of::<f32>() * width).zip(codes.bytes.par_chunks(width));
    let nan_row = rows.enumerate().find_map_any(|(row, (out, codes))| {
        let scales = &scales[row / block[0] * grid[1]..][..grid[1]];
        let out = out.as_chunks_mut::<4>().0.chunks_mut(block[1]);
        for ((out, codes), scale) in out.zip(codes.chunks(block[1])).zip(scales) {
            for (out, code) in out.iter_mut().zip(codes) {
                *out = (values[usize::from(*code)] * scale).to_le_bytes();
            }
        }
        codes.iter().any(|code| code & NAN == NAN).then_some(row)
    });
    if let Some(row) = nan_row {
        return Err(parts.invalid("weight", format!("row {row} has a code of NaN")));
    }
    Ok(Some(parts.finish_floats(&codes, bytes)))
}

/// Returns the shapes that scales of a matrix may have in the file, each with its meaning. `count`
/// is the number of matrices in the module, if it has several.
fn forms(
    sharing: &[ScaleSharing],
    [out, inputs]: [usize; 2],
    count: Option<usize>,
) -> Vec<(Vec<usize>, Scales)> {
    let mut forms = Vec::new();
    for sharing in sharing {
        let (grid, block) = match *sharing {
            ScaleSharing::Tensor => ([1, 1], [out, inputs]),
            ScaleSharing::Row => ([out, 1], [1, inputs]),
            ScaleSharing::Block([height, width]) => {
                ([out.div_ceil(height), inputs.div_ceil(width)], [height, width])
            }
            // No writer of 8-bit floats has groups.
            ScaleSharing::Group(_) => continue,
        };
        // Chunks of no elements are no chunks.
        let block = block.map(|size| size.max(1));
        let shapes: &[&[usize]] = match sharing {
            ScaleSharing::Tensor => &[&[], &[1], &[1, 1]],
            ScaleSharing::Row => &[&[out, 1], &[out]],
            _ => &[&grid],
        };
        let scales = |is_sliced| Scales { grid, block, is_sliced };
        let one_each = |shape: &&[usize]| {
            let shape = count.into_iter().chain(shape.iter().copied()).collect();
            (shape, scales(count.is_some()))
        };
        forms.extend(shapes.iter().map(one_each));
        // One scale of all matrices.
        if count.is_some() && *sharing == ScaleSharing::Tensor {
            forms.extend([vec![], vec![1]].map(|shape| (shape, scales(false))));
        }
    }
    forms
}

/// Returns the value of each code: a sign, four bits of exponent and three of mantissa. There is no
/// infinity, and one NaN of each sign.
pub(super) fn table() -> [f32; 256] {
    std::array::from_fn(|code| {
        let (exponent, mantissa) = (code >> 3 & 15, (code & 7) as f32);
        let magnitude = match exponent {
            15 if mantissa == 7.0 => f32::NAN,
            0 => mantissa / 8.0 * (-6.0f32).exp2(),
            _ => (1.0 + mantissa / 8.0) * (exponent as f32 - 7.0).exp2(),
        };
        if code >= 128 { -magnitude } else { magnitude }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The largest number, the smallest normal one and the smallest of all are those of the paper.
    #[test]
    fn codes_have_the_values_of_the_format() {
        let table = table();
        assert_eq!([table[0x7E], table[0x08], table[0x01]], [448.0, 2f32.powi(-6), 2f32.powi(-9)]);
        assert_eq!([table[0x00], table[0x38], table[0xB9]], [0.0, 1.0, -1.125]);
        assert!(table[0x7F].is_nan() && table[0xFF].is_nan());
        assert_eq!(table.iter().filter(|value| value.is_finite()).count(), 254);
    }

    #[test]
    fn the_last_blocks_may_be_partial() {
        let shapes = |sharing, count| -> Vec<Vec<usize>> {
            forms(&[sharing], [960, 300], count).into_iter().map(|(shape, _)| shape).collect()
        };
        let blocks = ScaleSharing::Block([128, 128]);
        assert_eq!(shapes(blocks, None), [[8, 3]]);
        assert_eq!(shapes(blocks, Some(5)), [[5, 8, 3]]);
        let (_, scales) = &forms(&[blocks], [960, 300], None)[0];
        assert_eq!((scales.grid, scales.block), ([8, 3], [128, 128]));
        assert_eq!(shapes(ScaleSharing::Row, None), [vec![960, 1], vec![960]]);
        assert_eq!(shapes(ScaleSharing::Tensor, None), [vec![], vec![1], vec![1, 1]]);
        let of_experts = [vec![5], vec![5, 1], vec![5, 1, 1], vec![], vec![1]];
        assert_eq!(shapes(ScaleSharing::Tensor, Some(5)), of_experts);
        assert!(shapes(ScaleSharing::Group(128), None).is_empty());
    }
}
