//! compressed-tensors (<https://github.com/vllm-project/compressed-tensors>), its formats.
//!
//! `pack-quantized` has `p = 32 / bits` fields a word, the first in the lowest bits. A field is the
//! signed value plus `2^(bits - 1)`.
//!
//! | tensor | shape | dtype |
//! |---|---|---|
//! | `weight_packed` | `[out, in / p]` | i32 |
//! | `weight_scale` | `[out, groups]` | f16, bf16, f32 |
//! | `weight_zero_point` | `[out / p, groups]`, packed along the outputs; where asymmetric | i32 |
//! | `weight_g_idx` | `[in]`: each input's group; where `actorder` is "group" | i32 |
//! | `weight_shape` | `[2]`: out, in; not read, because `config.json` gives them | i64 |
//!
//! `int-quantized`:
//!
//! | tensor | shape | dtype |
//! |---|---|---|
//! | `weight` | `[out, in]` | i8 |
//! | `weight_scale` | `[out, groups]`, or one for all | f16, bf16, f32 |
//! | `weight_zero_point` | as the scales; where asymmetric | i8 |
//! | `weight_g_idx` | as above | i32 |
//!
//! `nvfp4-pack-quantized` and `mxfp4-pack-quantized`, floats of four bits (E2M1 of the OCP
//! Microscaling Formats, version 1.0):
//!
//! | tensor | shape | dtype |
//! |---|---|---|
//! | `weight_packed` | `[out, in / 2]`: two codes a byte, the first in the low half | u8 |
//! | `weight_scale` | `[out, groups]`: E4M3, or the exponent of 2, plus 127 | F8_E4M3, u8 |
//! | `weight_global_scale` | `[1]`: the divisor of all scales; where they are E4M3 | f32 |
//!
//! `float-quantized` is read by `float8`. The config gives the inputs of a group, not the number of
//! scales: the package writes none whose last group would be partial.
//!
//! `w[o][i] = scale[o][g] · (q[o][i] - z[o][g])`. Scales for the activations are not needed. If
//! activations are quantized, each token's scale is computed in its step.

use playhouse_kernels::{Codes, Offsets};

use super::float8;
use super::parts::Parts;
use super::sharing::{ScaleSharing, listed};
use super::unpack::{field, input_order, reorder_bytes, reorder_nibbles};
use crate::weights::{StoredMatrix, WeightsError};

pub(super) fn read<'a>(
    parts: Parts<'a, '_>,
    sharing: &[ScaleSharing],
) -> Result<Option<StoredMatrix<'a>>, WeightsError> {
    if parts.is_of("weight_packed", "U8") {
        return read_small_floats(parts, sharing, SMALL_FLOATS).map(Some);
    }
    if parts.has("weight_packed") {
        return read_packed(parts, sharing).map(Some);
    }
    if parts.is_of("weight", "I8") {
        return read_bytes(parts, sharing).map(Some);
    }
    float8::read(parts, sharing)
}

/// The names of floats of four bits, and the use of their common scale.
#[derive(Debug, Clone, Copy)]
pub(super) struct SmallFloats {
    pub(super) codes: &'static str,
    pub(super) global_scale: &'static str,
    /// Whether it divides the other scales. Otherwise it multiplies them.
    pub(super) is_divisor: bool,
}

const SMALL_FLOATS: SmallFloats =
    SmallFloats { codes: "weight_packed", global_scale: "weight_global_scale", is_divisor: true };

/// Reads floats of four bits.
pub(super) fn read_small_floats<'a>(
    mut parts: Parts<'a, '_>,
    sharing: &[ScaleSharing],
    SmallFloats { codes, global_scale, is_divisor }: SmallFloats,
) -> Result<StoredMatrix<'a>, WeightsError> {
    const SCALES: &str = "weight_scale";
    let [out, inputs] = parts.shape;
    if !inputs.is_multiple_of(2) {
        let reason = format!("{inputs} inputs; expected a multiple of 2");
        return Err(parts.invalid(codes, reason));
    }
    let codes = parts.packed(codes, &[out, inputs / 2])?.bytes.to_vec();
    let (groups, group_size) = stored_groups(&parts, sharing)?;
    let mut scales: Vec<f32> = match parts.is_of(SCALES, float8::DTYPE) {
        true => {
            let values = float8::table();
            let codes = parts.of_type(SCALES, &[out, groups], float8::DTYPE)?.bytes;
            codes.iter().map(|code| values[usize::from(*code)]).collect()
        }
        false => parts.scales(SCALES, &[out, groups], false)?,
    };
    if parts.has(global_scale) {
        let is_scalar = parts.stored_shape(global_scale).is_some_and(<[usize]>::is_empty);
        let shape: &[usize] = if is_scalar { &[] } else { &[1] };
        let global: f32 = parts.floats(global_scale, shape)?.iter().sum();
        scales.iter_mut().for_each(|scale| match is_divisor {
            true => *scale /= global,
            false => *scale *= global,
        });
    }
    parts.require_finite(SCALES, &scales)?;
    parts.finish(group_size, Codes::E2M1(codes), scales, Offsets::None, None)
}

fn read_packed<'a>(
    mut parts: Parts<'a, '_>,
    sharing: &[ScaleSharing],
) -> Result<StoredMatrix<'a>, WeightsError> {
    let [out, inputs] = parts.shape;
    // Eight-bit codes have twice as many words. In every other case the expected shape makes a
    // clear error.
    let words = parts.stored_shape("weight_packed").and_then(|shape| shape.get(1)).copied();
    let bits = if words == Some(inputs / 4) { 8 } else { 4 };
    let per_word = 32 / bits;
    if !inputs.is_multiple_of(per_word) {
        let reason = format!("{inputs} inputs; expected a multiple of {per_word}");
        return Err(parts.invalid("weight_packed", reason));
    }
    let packed = parts.words("weight_packed", &[out, inputs / per_word])?;
    let (groups, group_size) = stored_groups(&parts, sharing)?;
    let scales = parts.floats("weight_scale", &[out, groups])?;
    let order = stored_order(&mut parts, group_size)?;
    // Codes and zero points of eight bits are signed here, but unsigned in the file.
    let centre = if bits == 8 { 0x80 } else { 0 };
    let zero_points = match parts.has("weight_zero_point") {
        true => {
            let rows = out.div_ceil(per_word);
            let stored = parts.words("weight_zero_point", &[rows, groups])?;
            let zero = |at: usize| {
                let (o, group) = (at / groups, at % groups);
                let word = [stored[o / per_word * groups + group]];
                (field(&word, bits, o % per_word) ^ centre).cast_signed()
            };
            Offsets::ZeroPoints((0..scales.len()).map(zero).collect())
        }
        false if bits == 4 => Offsets::ZeroPoints(vec![8; scales.len()]),
        false => Offsets::None,
    };
    // Little-endian words of four-bit fields are bytes of two codes each.
    let bytes = packed.iter().flat_map(|word| word.to_le_bytes());
    let codes = if bits == 4 {
        let codes: Vec<u8> = bytes.collect();
        Codes::U4(match &order {
            Some(order) => reorder_nibbles(&codes, inputs, order),
            None => codes,
        })
    } else {
        let codes: Vec<i8> = bytes.map(|code| (code ^ centre).cast_signed()).collect();
        Codes::I8(match &order {
            Some(order) => reorder_bytes(&codes, inputs, order),
            None => codes,
        })
    };
    parts.finish(group_size, codes, scales, zero_points, order)
}

fn read_bytes<'a>(
    mut parts: Parts<'a, '_>,
    sharing: &[ScaleSharing],
) -> Result<StoredMatrix<'a>, WeightsError> {
    let [out, inputs] = parts.shape;
    let codes = parts.bytes("weight", &[out, inputs])?;
    let one_for_all = |shape: &[usize]| shape.iter().product::<usize>() == 1;
    let stored = parts.stored_shape("weight_scale").map(<[usize]>::to_vec);
    let (scale_shape, group_size) = match stored {
        Some(shape) if one_for_all(&shape) && out > 1 => (shape, inputs),
        // Some writers store a vector with one scale for each row.
        Some(shape) if shape == [out] => (shape, inputs),
        _ => {
            let (groups, group_size) = stored_groups(&parts, sharing)?;
            (vec![out, groups], group_size)
        }
    };
    let scales = spread(out, parts.floats("weight_scale", &scale_shape)?);
    let zero_points = match parts.has("weight_zero_point") {
        true => {
            let stored = parts.bytes("weight_zero_point", &scale_shape)?;
            Offsets::ZeroPoints(spread(out, stored))
        }
        false => Offsets::None,
    };
    let order = stored_order(&mut parts, group_size)?;
    let codes = match &order {
        Some(order) => reorder_bytes(&codes, inputs, order),
        None => codes,
    };
    parts.finish(group_size, Codes::I8(codes), scales, zero_points, order)
}

/// Returns one value for each output, where one for all may be stored.
fn spread<T: Copy>(out: usize, values: Vec<T>) -> Vec<T> {
    match values[..] {
        [value] => vec![value; out],
        _ => values,
    }
}

/// Returns the order of the inputs, if `weight_g_idx` gives them one. The library fills it with a
/// group of -1 before an order is chosen, so -1 means no order.
fn stored_order(
    parts: &mut Parts<'_, '_>,
    group_size: usize,
) -> Result<Option<Vec<u32>>, WeightsError> {
    const PART: &str = "weight_g_idx";
    if !parts.has(PART) {
        return Ok(None);
    }
    let [_, inputs] = parts.shape;
    let group_of = parts.words(PART, &[inputs])?;
    if group_of.contains(&u32::MAX) {
        return Ok(None);
    }
    input_order(&group_of, group_size).map_err(|reason| parts.invalid(PART, reason))
}

/// Returns the groups of a row, and the inputs of a group: the scheme of the config that has this
/// shape of scales.
fn stored_groups(
    parts: &Parts<'_, '_>,
    sharing: &[ScaleSharing],
) -> Result<(usize, usize), WeightsError> {
    let [_, inputs] = parts.shape;
    // Reading an absent tensor reports it. If the shape is no pair, one group a row is expected.
    let Some(shape) = parts.stored_shape("weight_scale") else { return Ok((1, inputs)) };
    let groups = shape.get(1).copied().unwrap_or(1);
    let size = |sharing: &ScaleSharing| match *sharing {
        ScaleSharing::Tensor | ScaleSharing::Row => Some(inputs),
        ScaleSharing::Group(size) => Some(size),
        ScaleSharing::Block(_) => None,
    };
    let mut sizes = sharing.iter().filter_map(size);
    let fits = |size: &usize| groups.checked_mul(*size) == Some(inputs);
    sizes.find(fits).map(|size| (groups, size)).ok_or_else(|| {
        let by_config = listed(sharing);
        let reason = format!(
            "scales {shape:?} of a row of {inputs} inputs; config.json gives {by_config}, and each \
             group must be whole"
        );
        parts.invalid("weight_scale", reason)
    })
}
