//! Masks, biases and penalties, as a list of edits a row. They are applied to a copy of the logits,
//! so that log-probabilities are those of the model.

use std::collections::BTreeMap;

use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::super::{SamplingRow, mask};
use super::plan::{EDIT_WORDS, NONE, Plan};
use super::{MASKED, UNITS};
use crate::cube::{Rows, buffer, cubes, upload, words_buffer};

/// The changes of one token's logit, applied in this order.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Edit {
    /// Added to the logit; [`MASKED`] masks the token.
    pub(super) bias: f32,
    /// Divides positive logits, multiplies others.
    pub(super) repetition: f32,
    /// Subtracted from the logit.
    pub(super) frequency: f32,
    /// Subtracted from the logit.
    pub(super) presence: f32,
}

impl Default for Edit {
    fn default() -> Self {
        Self { bias: 0.0, repetition: 1.0, frequency: 0.0, presence: 0.0 }
    }
}

/// Returns the tokens that `row` changes, except those in bit masks.
pub(super) fn edits(row: &SamplingRow<'_>, vocab: usize) -> BTreeMap<u32, Edit> {
    let mut edits: BTreeMap<u32, Edit> = BTreeMap::new();
    let known = |id: u32| (id as usize) < vocab;
    for &(id, bias) in row.logit_bias.iter().filter(|(id, _)| known(*id)) {
        edits.entry(id).or_default().bias += bias;
    }
    for id in mask::masked_tokens(row).filter(|id| known(*id)) {
        edits.entry(id).or_default().bias = MASKED;
    }
    let output = || row.output_token_ids.iter().copied().filter(|id| known(*id));
    if row.repetition_penalty != 1.0 {
        let prompt = row.prompt_token_ids.iter().copied().filter(|id| known(*id));
        for id in prompt.chain(output()) {
            edits.entry(id).or_default().repetition = row.repetition_penalty;
        }
    }
    if row.frequency_penalty != 0.0 || row.presence_penalty != 0.0 {
        let mut counts: BTreeMap<u32, u32> = BTreeMap::new();
        output().for_each(|id| *counts.entry(id).or_default() += 1);
        for (id, count) in counts {
            let edit = edits.entry(id).or_default();
            edit.frequency = row.frequency_penalty * count as f32;
            edit.presence = row.presence_penalty;
        }
    }
    edits
}

/// Returns the logits with all edits, or `None` if there are no edits.
pub(super) fn edited(logits: &Rows, plan: &Plan) -> Option<CubeTensor> {
    if !plan.changes_logits {
        return None;
    }
    let client = logits.client();
    let edited = logits.sibling(logits.rows, logits.cols);
    let elements = logits.rows * logits.cols;
    let (masks, allowed) = (upload(client, &plan.masks), upload(client, &plan.allowed));
    let (edits, count) = (upload(client, &plan.edits), plan.edits.len() / EDIT_WORDS);
    // SAFETY: a unit beyond the elements or the edits does nothing. An edit's place is one of the
    // logits', and masks have a bit for each token.
    unsafe {
        copy_logits_kernel::launch_unchecked(
            client,
            cubes(elements.div_ceil(UNITS)),
            CubeDim::new_1d(UNITS as u32),
            logits.arg(),
            words_buffer(&masks),
            words_buffer(&allowed),
            buffer(&edited),
            elements,
            logits.cols,
            logits.stride() * logits.lanes,
        );
        if count > 0 {
            edit_kernel::launch_unchecked(
                client,
                cubes(count.div_ceil(UNITS)),
                CubeDim::new_1d(UNITS as u32),
                words_buffer(&edits),
                buffer(&edited),
                count,
            );
        }
    }
    Some(edited)
}

#[cube(launch_unchecked)]
fn copy_logits_kernel(
    logits: &[f32],
    masks: &[u32],
    allowed: &[u32],
    edited: &mut [f32],
    elements: usize,
    vocab: usize,
    stride: usize,
) {
    let element = ABSOLUTE_POS;
    if element >= elements {
        terminate!();
    }
    let (row, id) = (element / vocab, element % vocab);
    let mut logit = logits[row * stride + id];
    let mask = allowed[row];
    if mask != NONE && !is_set(masks, mask, id) {
        logit = MASKED.runtime();
    }
    edited[element] = logit;
}

#[cube(launch_unchecked)]
fn edit_kernel(edits: &[u32], edited: &mut [f32], count: usize) {
    let edit = ABSOLUTE_POS;
    if edit >= count {
        terminate!();
    }
    let at = edit * EDIT_WORDS;
    let place = edits[at] as usize;
    let bias = f32::reinterpret(edits[at + 1]);
    let repetition = f32::reinterpret(edits[at + 2]);
    let logit = edited[place];
    // A masked logit stays as it is: multiplied, it would become non-finite.
    if logit > MASKED {
        let mut changed = logit + bias;
        if changed > 0.0f32 {
            changed /= repetition;
        } else {
            changed *= repetition;
        }
        changed -= f32::reinterpret(edits[at + 3]);
        changed -= f32::reinterpret(edits[at + 4]);
        edited[place] = select(bias <= MASKED, MASKED.runtime(), changed);
    }
}

/// Returns whether the mask that begins at word `mask` contains token `id`.
#[cube]
pub(super) fn is_set(masks: &[u32], mask: u32, id: usize) -> bool {
    let word = masks[mask as usize + id / 32];
    (word >> (id % 32) as u32) & 1u32 == 1u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tokens_changes_are_one_edit() {
        let row = SamplingRow {
            logit_bias: &[(1, 0.5), (1, 0.25), (2, 1.0), (99, 1.0)],
            min_tokens: 9,
            stop_token_ids: &[2],
            prompt_token_ids: &[3, 3],
            output_token_ids: &[1, 1, 4, 99],
            repetition_penalty: 2.0,
            frequency_penalty: 0.5,
            presence_penalty: 0.25,
            ..SamplingRow::default()
        };
        let plain = Edit::default();
        let output = Edit { repetition: 2.0, frequency: 0.5, presence: 0.25, ..plain };
        let expected = [
            (1, Edit { bias: 0.75, frequency: 1.0, ..output }),
            (2, Edit { bias: MASKED, ..plain }),
            (3, Edit { repetition: 2.0, ..plain }),
            (4, output),
        ];
        assert_eq!(edits(&row, 10), BTreeMap::from(expected));
    }
}
