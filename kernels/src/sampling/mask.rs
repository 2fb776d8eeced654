//! Masks of tokens that must not come, and biases.

use super::SamplingRow;

const MASKED: f32 = f32::NEG_INFINITY;

/// Applies `allowed_token_ids`, `bad_words`, `min_tokens` and `logit_bias`.
pub(super) fn apply(logits: &mut [f32], row: &SamplingRow<'_>) {
    if let Some(allowed) = row.allowed_token_ids {
        keep_only(logits, allowed);
    }
    masked_tokens(row).for_each(|id| mask(logits, id));
    for (id, bias) in row.logit_bias {
        if let Some(logit) = logits.get_mut(*id as usize) {
            *logit += bias;
        }
    }
}

/// Returns the tokens that `bad_words` and `min_tokens` forbid now.
pub(super) fn masked_tokens(row: &SamplingRow<'_>) -> impl Iterator<Item = u32> {
    let completed = |word: &Vec<u32>| completed_by(word, row.output_token_ids);
    let is_too_short = row.output_token_ids.len() < row.min_tokens as usize;
    let stop = row.stop_token_ids.iter().filter(move |_| is_too_short).copied();
    row.bad_words.iter().filter_map(completed).chain(stop)
}

fn mask(logits: &mut [f32], id: u32) {
    if let Some(logit) = logits.get_mut(id as usize) {
        *logit = MASKED;
    }
}

fn keep_only(logits: &mut [f32], allowed: &[u32]) {
    let kept: Vec<(u32, f32)> =
        allowed.iter().filter_map(|id| Some((*id, *logits.get(*id as usize)?))).collect();
    logits.fill(MASKED);
    for (id, logit) in kept {
        logits[id as usize] = logit;
    }
}

/// Masks all tokens except those of `bitmask`. If none of these is left, restores them from `raw`,
/// the unmodified row: a grammar that has ended must still be able to end the output.
pub(super) fn keep_set(logits: &mut [f32], bitmask: &[u32], raw: &[f32]) {
    if !keep_bits(logits, bitmask) {
        logits.copy_from_slice(raw);
        keep_bits(logits, bitmask);
    }
}

/// Masks all other tokens. Returns whether any token is left.
fn keep_bits(logits: &mut [f32], bitmask: &[u32]) -> bool {
    let mut is_any_left = false;
    let words = bitmask.iter().copied().chain(std::iter::repeat(0));
    for (logits, word) in logits.chunks_mut(32).zip(words) {
        if word == 0 {
            logits.fill(MASKED);
            continue;
        }
        for (bit, logit) in logits.iter_mut().enumerate() {
            if word >> bit & 1 == 0 {
                *logit = MASKED;
            }
            is_any_left |= *logit != MASKED;
        }
    }
    is_any_left
}

/// Returns the token that would complete `word`, if `output` ends with the word's beginning.
fn completed_by(word: &[u32], output: &[u32]) -> Option<u32> {
    let (last, beginning) = word.split_last()?;
    output.ends_with(beginning).then_some(*last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(row: &SamplingRow<'_>, vocab: usize) -> Vec<usize> {
        let mut logits = vec![0.0; vocab];
        apply(&mut logits, row);
        (0..vocab).filter(|i| logits[*i] == MASKED).collect()
    }

    #[test]
    fn bad_words_mask_the_token_that_would_complete_them() {
        let bad_words = [vec![5], vec![1, 2], vec![3, 4, 6]];
        let row = |output| SamplingRow {
            bad_words: &bad_words,
            output_token_ids: output,
            ..SamplingRow::default()
        };
        assert_eq!(masked(&row(&[9, 1]), 10), [2, 5]);
        assert_eq!(masked(&row(&[3, 4]), 10), [5, 6]);
        assert_eq!(masked(&row(&[]), 10), [5]);
    }

    #[test]
    fn stop_tokens_wait_for_min_tokens() {
        let row = |output| SamplingRow {
            min_tokens: 2,
            stop_token_ids: &[3, 7],
            output_token_ids: output,
            ..SamplingRow::default()
        };
        assert_eq!(masked(&row(&[1]), 8), [3, 7]);
        assert!(masked(&row(&[1, 1]), 8).is_empty());
    }

    #[test]
    fn a_bitmask_leaves_its_tokens() {
        let mut logits = vec![1.0; 70];
        let raw = logits.clone();
        keep_set(&mut logits, &[1 << 31, 1 << 1], &raw);
        let left: Vec<_> = (0..70).filter(|i| logits[*i] == 1.0).collect();
        assert_eq!(left, [31, 33]);
    }

    #[test]
    fn a_bitmask_wins_where_nothing_else_is_left() {
        let row = SamplingRow { allowed_token_ids: Some(&[3, 4]), ..SamplingRow::default() };
        let raw = [1.0, 2.0, 3.0, 4.0, 5.0];
        let mut logits = raw;
        apply(&mut logits, &row);
        keep_set(&mut logits, &[0b00011], &raw);
        assert_eq!(logits, [1.0, 2.0, MASKED, MASKED, MASKED]);
        let mut logits = raw;
        apply(&mut logits, &row);
        keep_set(&mut logits, &[0b01001], &raw);
        assert_eq!(logits, [MASKED, MASKED, MASKED, 4.0, MASKED]);
    }

    #[test]
    fn only_allowed_tokens_stay_and_a_bias_cannot_revive_one() {
        let row = SamplingRow {
            allowed_token_ids: Some(&[1, 4, 99]),
            logit_bias: &[(0, 100.0), (4, -2.0), (99, 1.0)],
            ..SamplingRow::default()
        };
        let mut logits = vec![1.0; 6];
        apply(&mut logits, &row);
        assert_eq!(logits, [MASKED, 1.0, MASKED, MASKED, -1.0, MASKED]);
    }
}
