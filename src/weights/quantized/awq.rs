//! AWQ (<https://arxiv.org/abs/2306.00978>) in the layout of AutoAWQ's `WQLinear_GEMM`.
//!
//! | tensor | shape | dtype |
//! |---|---|---|
//! | `qweight` | `[in, out / 8]`, packed along the outputs | i32 |
//! | `qzeros` | `[groups, out / 8]`, packed along the outputs | i32 |
//! | `scales` | `[groups, out]` | f16, bf16, f32 |
//!
//! `w[o][i] = scales[g][o] · (q[i][o] - z[g][o])`. The eight fields of a word, from the lowest bits
//! up, belong to outputs 0, 2, 4, 6, 1, 3, 5, 7.

use playhouse_kernels::{Codes, Offsets};

use super::parts::Parts;
use super::unpack::{nibbles_by_row, transposed};
use crate::weights::{StoredMatrix, WeightsError};

/// Fields of a word.
const PER_WORD: usize = 8;
/// The field within its word of each output.
const FIELD_OF: [usize; PER_WORD] = [0, 4, 1, 5, 2, 6, 3, 7];

pub(super) fn read<'a>(
    mut parts: Parts<'a, '_>,
    group_size: Option<usize>,
) -> Result<Option<StoredMatrix<'a>>, WeightsError> {
    if !parts.has("qweight") {
        return Ok(None);
    }
    let [out, inputs] = parts.shape;
    if !out.is_multiple_of(PER_WORD) || !inputs.is_multiple_of(2) {
        let reason = format!("a matrix [{out}, {inputs}]; expected multiples of {PER_WORD} and 2");
        return Err(parts.invalid("qweight", reason));
    }
    let (groups, group_size) = parts.groups("qweight", group_size)?;
    let words = out / PER_WORD;
    let qweight = parts.words("qweight", &[inputs, words])?;
    let qzeros = parts.words("qzeros", &[groups, words])?;
    let scales = transposed(&parts.floats("scales", &[groups, out])?, [groups, out]);

    let codes = nibbles_by_row([out, inputs], |input, output, codes| {
        for (code, output) in codes.iter_mut().zip(output..) {
            *code = field(&qweight[input * words..], output);
        }
    });
    let zero = |at: usize| field(&qzeros[at % groups * words..], at / groups).cast_signed();
    let zero_points = Offsets::ZeroPoints((0..scales.len()).map(zero).collect());
    parts.finish(group_size, Codes::U4(codes), scales, zero_points, None).map(Some)
}

/// Returns the code of an output. `words` is its row.
fn field(words: &[u32], output: usize) -> u8 {
    (words[output / PER_WORD] >> (4 * FIELD_OF[output % PER_WORD]) & 0x0F) as u8
}
