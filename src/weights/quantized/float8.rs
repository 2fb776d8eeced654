//! Weights as 8-bit floats (E4M3, <https://arxiv.org/abs/2209.05433>) with scales: those of
//! DeepSeek V3 (HF `FineGrainedFP8Config`), and those of compressed-tensors (`float-quantized`).
//!
//! | tensor | shape | dtype |
//! |---|---|---|
//! | `weight` | `[out, in]` | F8_E4M3 |
//! | `weight_scale_inv`, or `weight_scale` | `[out / height, in / width]`, rounded up; `[out, 1]`; or one for all | f16, bf16, f32, or exponents of two |
//!
//! `w[o][i] = weight[o][i] · scale[o / height][i / width]`, computed in f32 and then rounded to the
//! model's dtype. Scales for activations are not needed: activations stay floats.

use rayon::prelude::*;

use super::parts::Parts;
use crate::weights::{StoredMatrix, WeightsError};

/// The type of the codes in safetensors files.
pub(super) const DTYPE: &str = "F8_E4M3";

/// Reads the weight of a module whose scales have blocks of `block`, or by default of the size that
/// the number of scales gives.
pub(super) fn read<'a>(
    mut parts: Parts<'a, '_>,
    block: Option<[usize; 2]>,
) -> Result<Option<StoredMatrix<'a>>, WeightsError> {
    if !parts.is_of("weight", DTYPE) {
        return Ok(None);
    }
    let shape = parts.shape;
    let part = if parts.has("weight_scale") { "weight_scale" } else { "weight_scale_inv" };
    let stored = parts.stored_shape(part).map(<[usize]>::to_vec);
    let (stored, grid, block) = match (block, stored) {
        (Some(block), Some(stored)) if stored.len() == 2 => {
            let grid = [shape[0].div_ceil(block[0]), shape[1].div_ceil(block[1])];
            (grid.to_vec(), grid, block)
        }
        (_, stored) => {
            let stored = stored.unwrap_or_default();
            let grid = grid(&stored, shape).ok_or_else(|| {
                let reason = format!("{stored:?} scales of a matrix {shape:?}");
                parts.invalid(part, reason)
            })?;
            (stored, grid, [shape[0] / grid[0], shape[1] / grid[1]])
        }
    };
    let scales = parts.scales(part, &stored)?;
    let codes = parts.raw("weight", &shape)?;
    let values = table();
    let mut bytes = vec![0; size_of::<f32>() * shape[0] * shape[1]];
    let width = shape[1].max(1);
    let rows = bytes.par_chunks_mut(size_of::<f32>() * width).zip(codes.bytes.par_chunks(width));
    rows.enumerate().for_each(|(row, (out, codes))| {
        let scales = &scales[row / block[0] * grid[1]..][..grid[1]];
        let out = out.as_chunks_mut::<4>().0.chunks_mut(block[1]);
        for ((out, codes), scale) in out.zip(codes.chunks(block[1])).zip(scales) {
            for (out, code) in out.iter_mut().zip(codes) {
                *out = (values[usize::from(*code)] * scale).to_le_bytes();
            }
        }
    });
    Ok(Some(parts.finish_floats(&codes, bytes)))
}

/// Returns rows and columns of scales of this shape, whose blocks are all whole.
fn grid(stored: &[usize], [out, inputs]: [usize; 2]) -> Option<[usize; 2]> {
    let grid = match *stored {
        [] | [1] => [1, 1],
        [rows] => [rows, 1],
        [rows, columns] => [rows, columns],
        _ => return None,
    };
    let fits = |size: usize, count: usize| count > 0 && size > 0 && size.is_multiple_of(count);
    (fits(out, grid[0]) && fits(inputs, grid[1])).then_some(grid)
}

/// Returns the value of each code: a sign, four bits of exponent and three of mantissa. There is no
/// infinity, and one NaN of each sign.
fn table() -> [f32; 256] {
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
    fn scales_are_one_or_a_column_or_a_grid() {
        for (stored, expected) in [
            (&[][..], Some([1, 1])),
            (&[1], Some([1, 1])),
            (&[8], Some([8, 1])),
            (&[8, 1], Some([8, 1])),
            (&[4, 3], Some([4, 3])),
            (&[3, 3], None),
            (&[4, 5], None),
            (&[0, 3], None),
            (&[1, 2, 3], None),
        ] {
            assert_eq!(grid(stored, [8, 6]), expected, "{stored:?}");
        }
    }
}
