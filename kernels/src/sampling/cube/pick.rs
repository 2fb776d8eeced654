//! The kernel that picks a token, one cube a row.
#![allow(
    clippy::collapsible_if,
    reason = "the compiler decides the outer `if`, the device the inner"
)]

use cubecl::prelude::*;
use cubecl::server::Handle;

use burn_cubecl::tensor::CubeTensor;

use super::super::SampleError;
use super::edit::is_set;
use super::noise::{gumbel, word};
use super::plan::{NONE, Plan, ROW_WORDS};
use super::truncate::truncate;
use super::{GARBAGE, MASKED, PICKED, Scratch, UNITS, rank};
use crate::KernelError;
use crate::cube::{Rows, buffer, cubes, device_error, upload, words_buffer};

/// The status of a row whose tokens are all masked.
const EMPTY: u32 = 2;

/// Bounds of the noise: at most `NOISE_MAX`, and above `-NOISE_MIN`.
const NOISE_MAX: f32 = 22.88;
const NOISE_MIN: f32 = 3.2;

/// Number of words of a pick: its status, its token, and the token's logit.
const PICK_WORDS: usize = 3;

/// Picks a token for each row. Returns the picks on the device.
pub(super) fn pick(logits: &Rows, edited: Option<&CubeTensor>, plan: &Plan) -> Handle {
    let client = logits.client();
    let picks = client.empty(logits.rows * PICK_WORDS * size_of::<u32>());
    let (rows, masks) = (upload(client, &plan.rows), upload(client, &plan.masks));
    // SAFETY: a cube beyond the rows does nothing; parameters and masks are those of the rows.
    unsafe {
        pick_kernel::launch_unchecked(
            client,
            cubes(logits.rows),
            CubeDim::new_1d(UNITS as u32),
            logits.arg(),
            edited.map_or_else(|| logits.arg(), buffer),
            words_buffer(&rows),
            words_buffer(&masks),
            words_buffer(&picks),
            logits.rows,
            logits.cols,
            logits.stride() * logits.lanes,
            edited.is_some(),
        );
    }
    picks
}

/// Copies the picks to the host. Waits for the device.
pub(super) fn read(
    logits: &Rows,
    picks: &Handle,
) -> Result<Vec<Result<u32, SampleError>>, KernelError> {
    let bytes = logits.client().read_one(picks.clone()).map_err(device_error)?;
    let words: Vec<u32> = bytemuck::pod_collect_to_vec(&bytes[..]);
    let pick = |pick: &[u32]| match (pick[0], pick[1]) {
        (PICKED, token) => Ok(token),
        (GARBAGE, token_id) => {
            let logit = f32::from_bits(pick[2]).to_string();
            Err(SampleError::NotFinite { token_id, logit })
        }
        _ => Err(SampleError::NoCandidate),
    };
    Ok(words.chunks_exact(PICK_WORDS).take(logits.rows).map(pick).collect())
}

/// A row of logits, as the draw reads it.
#[derive(CubeType)]
pub(super) struct Source {
    /// The places where the row begins, in the model's logits and in the edited ones.
    raw_at: usize,
    edited_at: usize,
    pub(super) vocab: usize,
    temperature: f32,
    /// A grammar's mask, or [`NONE`].
    grammar: u32,
    /// Whether edits are ignored.
    is_raw: bool,
    #[cube(comptime)]
    is_edited: bool,
}

/// Returns a token's logit divided by temperature, or [`MASKED`].
#[cube]
pub(super) fn logit(raw: &[f32], edited: &[f32], masks: &[u32], source: &Source, id: usize) -> f32 {
    let mut logit = raw[source.raw_at + id];
    if comptime!(source.is_edited) {
        if !source.is_raw {
            logit = edited[source.edited_at + id];
        }
    }
    if source.grammar != NONE {
        let is_in_grammar = is_set(masks, source.grammar, id);
        logit = select(is_in_grammar, logit, MASKED.runtime());
    }
    select(logit <= MASKED, MASKED.runtime(), logit / source.temperature)
}

#[cube(launch_unchecked)]
fn pick_kernel(
    raw: &[f32],
    edited: &[f32],
    rows: &[u32],
    masks: &[u32],
    picks: &mut [u32],
    count: usize,
    vocab: usize,
    stride: usize,
    #[comptime] is_edited: bool,
) {
    let row = CUBE_POS;
    if row >= count {
        terminate!();
    }
    let unit = UNIT_POS as usize;
    let of_row = row * ROW_WORDS;
    let is_greedy = rows[of_row] == 1u32;
    let mut source = Source {
        raw_at: row * stride,
        edited_at: row * vocab,
        vocab,
        temperature: f32::reinterpret(rows[of_row + 1]),
        grammar: rows[of_row + 9],
        is_raw: false.runtime(),
        is_edited,
    };
    if is_greedy {
        source.temperature = 1.0f32.runtime();
    }

    let mut scratch = Scratch::new();
    let (is_garbage, garbage) = first_garbage(raw, row * stride, vocab, &mut scratch);
    let (mut max, mut best) = likeliest(raw, edited, masks, &source, &mut scratch);
    // If a grammar and the edits together leave no token, the grammar alone counts.
    if comptime!(is_edited) {
        if best == NONE && source.grammar != NONE {
            source.is_raw = true.runtime();
            let (raw_max, raw_best) = likeliest(raw, edited, masks, &source, &mut scratch);
            max = raw_max;
            best = raw_best;
        }
    }

    let mut status = PICKED.runtime();
    let mut token = best;
    if is_garbage > 0.0f32 {
        status = GARBAGE.runtime();
        token = garbage;
    } else if best == NONE {
        status = EMPTY.runtime();
    } else if !is_greedy {
        token = draw(raw, edited, rows, masks, &source, &mut scratch, of_row, max, best);
    }
    if unit == 0 {
        let pick = row * PICK_WORDS;
        picks[pick] = status;
        picks[pick + 1] = token;
        picks[pick + 2] = 0u32.runtime();
        if status == GARBAGE {
            picks[pick + 2] = u32::reinterpret(raw[row * stride + token as usize]);
        }
    }
}

/// Finds the first logit that is NaN or +∞. Returns 1 and its token, or 0.
#[cube]
fn first_garbage(raw: &[f32], at: usize, vocab: usize, scratch: &mut Scratch) -> (f32, u32) {
    let mut found = 0.0f32.runtime();
    let mut first = NONE.runtime();
    let mut id = UNIT_POS as usize;
    while id < vocab {
        let bits = u32::reinterpret(raw[at + id]);
        let is_garbage = (bits & 0x7fff_ffffu32) > 0x7f80_0000u32 || bits == 0x7f80_0000u32;
        if is_garbage && first == NONE {
            found = 1.0f32.runtime();
            first = id as u32;
        }
        id += UNITS;
    }
    scratch.best(found, first)
}

/// Returns the largest logit and its token. Of equal logits, the first wins. The token is [`NONE`]
/// if all tokens are masked.
#[cube]
fn likeliest(
    raw: &[f32],
    edited: &[f32],
    masks: &[u32],
    source: &Source,
    scratch: &mut Scratch,
) -> (f32, u32) {
    let mut max = MASKED.runtime();
    let mut best = NONE.runtime();
    let mut id = UNIT_POS as usize;
    while id < source.vocab {
        let x = logit(raw, edited, masks, source, id);
        if x > max {
            max = x;
            best = id as u32;
        }
        id += UNITS;
    }
    scratch.best(max, best)
}

/// Draws a token from those that truncation leaves.
#[cube]
fn draw(
    raw: &[f32],
    edited: &[f32],
    rows: &[u32],
    masks: &[u32],
    source: &Source,
    scratch: &mut Scratch,
    of_row: usize,
    max: f32,
    best: u32,
) -> u32 {
    let mut seed = Array::<u32>::new(2usize);
    let mut position = Array::<u32>::new(2usize);
    #[unroll]
    for half in 0..2usize {
        seed[half] = rows[of_row + 5 + half];
        position[half] = rows[of_row + 7 + half];
    }
    let kept = truncate(raw, edited, rows, masks, source, scratch, of_row, max);
    let hopeless = max - comptime!(NOISE_MAX + NOISE_MIN);
    let mut score = MASKED.runtime();
    let mut token = NONE.runtime();
    let mut id = UNIT_POS as usize;
    while id < source.vocab {
        let x = logit(raw, edited, masks, source, id);
        let place = rank(x);
        let is_kept = place > kept.rank || (place == kept.rank && (id as u32) < kept.first_cut);
        if is_kept && x >= hopeless {
            // Scores are relative to the largest logit, so that large logits do not absorb the
            // noise.
            let noisy = (x - max) + gumbel(word(id as u32, &seed, &position));
            if noisy > score {
                score = noisy;
                token = id as u32;
            }
        }
        id += UNITS;
    }
    let (_, token) = scratch.best(score, token);
    // Truncation never removes the likeliest token.
    select(token == NONE, best, token)
}
