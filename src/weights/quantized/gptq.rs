//! GPTQ (<https://arxiv.org/abs/2210.17323>), as AutoGPTQ and GPTQModel store it.
//!
//! With `p = 32 / bits` fields a word, the first in the lowest bits:
//!
//! | tensor | shape | dtype |
//! |---|---|---|
//! | `qweight` | `[in / p, out]`, packed along the inputs | i32 |
//! | `qzeros` | `[groups, out / p]`, packed along the outputs | i32 |
//! | `scales` | `[groups, out]` | f16, bf16, f32 |
//! | `g_idx` | `[in]`: each input's group (`desc_act`); may be absent | i32 |
//!
//! `w[o][i] = scales[g][o] · (q[i][o] - z[g][o])`. The first version of the format
//! (`checkpoint_format` "gptq") stores `z - 1` (for 0, a field of ones). "gptq_v2" stores `z`.
//! Symmetric checkpoints store their zero points as well.

use playhouse_kernels::{Codes, Offsets};

use super::GptqFormat;
use super::parts::Parts;
use super::unpack::{
    bytes_by_row, field, input_order, nibbles_by_row, reorder_bytes, reorder_nibbles, transposed,
};
use crate::weights::{StoredMatrix, WeightsError};

pub(super) fn read<'a>(
    mut parts: Parts<'a, '_>,
    format: &GptqFormat,
) -> Result<Option<StoredMatrix<'a>>, WeightsError> {
    if !parts.has("qweight") {
        return Ok(None);
    }
    let ([out, inputs], bits) = (parts.shape, format.bits);
    let per_word = 32 / bits;
    if !out.is_multiple_of(per_word) || !inputs.is_multiple_of(per_word) {
        let reason = format!("a matrix [{out}, {inputs}]; expected multiples of {per_word}");
        return Err(parts.invalid("qweight", reason));
    }
    let (groups, group_size) = parts.groups("qweight", format.group_size)?;
    let qweight = parts.words("qweight", &[inputs / per_word, out])?;
    let qzeros = parts.words("qzeros", &[groups, out / per_word])?;
    let scales = transposed(&parts.floats("scales", &[groups, out])?, [groups, out]);
    let order = match parts.has("g_idx") {
        true => {
            let group_of = parts.words("g_idx", &[inputs])?;
            let order = input_order(&group_of, group_size);
            order.map_err(|reason| parts.invalid("g_idx", reason))?
        }
        false => None,
    };

    let shift = |input: usize| bits * (input % per_word);
    let mask = (1u32 << bits) - 1;
    let read = |input: usize, output: usize, codes: &mut [u8]| {
        let words = &qweight[input / per_word * out + output..];
        for (code, word) in codes.iter_mut().zip(words) {
            *code = (word >> shift(input) & mask) as u8;
        }
    };
    // A signed code of eight bits is the stored one less 128, and so is a zero point.
    let centre = if bits == 8 { 0x80 } else { 0 };
    let zero = |at: usize| {
        let (group, output) = (at % groups, at / groups);
        let stored = u32::from(field(&qzeros[group * (out / per_word)..], bits, output));
        // A stored zero point of 0 - 1 has wrapped around. Adding 1 wraps it back, as in AutoGPTQ.
        let zero = if format.zeros_less_one { (stored + 1) & mask } else { stored };
        (zero as u8 ^ centre).cast_signed()
    };
    let zero_points = Offsets::ZeroPoints((0..scales.len()).map(zero).collect());
    let codes = if bits == 4 {
        let codes = nibbles_by_row([out, inputs], read);
        Codes::U4(match &order {
            Some(order) => reorder_nibbles(&codes, inputs, order),
            None => codes,
        })
    } else {
        let codes = bytes_by_row([out, inputs], read).into_iter();
        let codes: Vec<i8> = codes.map(|code| (code ^ 0x80).cast_signed()).collect();
        Codes::I8(match &order {
            Some(order) => reorder_bytes(&codes, inputs, order),
            None => codes,
        })
    };
    parts.finish(group_size, codes, scales, zero_points, order).map(Some)
}
