//! Rows of a weight, read from its panels, for an embedding that shares the output layer's matrix.

use burn::tensor::Tensor;
use cubecl::prelude::*;

use super::pack::place_at;
use super::{CubeWeight, PANEL};
use crate::cube::{
    StepInput, WordFormat, Words, buffer, cubes, float_tensor, into_tensor, upload_once, widen,
    words_buffer,
};

const UNITS: usize = 256;

/// Returns rows `token_ids`, `[num_tokens, in]`. All ids must be below the number of outputs.
pub(crate) fn tied_embedding(weight: &CubeWeight, token_ids: &[u32]) -> Tensor<2> {
    let client = weight.device.client();
    let y = float_tensor(&client, &weight.device, [token_ids.len(), weight.inputs]);
    let ids = upload_once(&client, &weight.device, StepInput::TokenIds, token_ids);
    let elements = token_ids.len() * weight.inputs;
    // SAFETY: a unit beyond the elements does nothing, and each id names a row.
    unsafe {
        rows_kernel::launch_unchecked(
            &client,
            cubes(elements.div_ceil(UNITS)),
            CubeDim::new_1d(UNITS as u32),
            words_buffer(&weight.words),
            words_buffer(&ids),
            buffer(&y),
            elements,
            weight.inputs,
            weight.format,
        );
    }
    into_tensor(y)
}

#[cube(launch_unchecked)]
fn rows_kernel(
    weight: &[Words],
    ids: &[u32],
    y: &mut [f32],
    elements: usize,
    inputs: usize,
    #[comptime] format: WordFormat,
) {
    let element = ABSOLUTE_POS;
    if element >= elements {
        terminate!();
    }
    let per_chunk = comptime!(format.per_chunk());
    let output = ids[element / inputs] as usize;
    let place = place_at(output % PANEL, format);
    let chunk = ((output / PANEL) * inputs + element % inputs) * comptime!(PANEL / per_chunk);
    let words = weight[chunk + place / per_chunk];
    let (part, lane) = (place % per_chunk / 4, place % 4);
    #[unroll]
    for h in 0..comptime!(format.per_word()) {
        let numbers = widen(words, h, format);
        #[unroll]
        for i in 0..4usize {
            if part == h && lane == i {
                y[element] = numbers.extract(i);
            }
        }
    }
}
