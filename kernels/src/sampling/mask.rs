//! Tokens that must not come, and biases.

use super::SamplingRow;

const MASKED: f32 = f32::NEG_INFINITY;

/// Applies `allowed_token_ids`, `bad_words`, `min_tokens` and `logit_bias`.
pub(super) fn apply(logits: &mut [f32], row: &SamplingRow<'_>) {
    if let Some(allowed) = row.allowed_token_ids {
        keep_only(logits, allowed);
    }
    for word in row.bad_words {
        if let Some(last) = completed_by(word, row.output_token_ids) {
            mask(logits, last);
        }
    }
    if row.output_token_ids.len() < row.min_tokens as usize {
        row.stop_token_ids.iter().for_each(|id| mask(logits, *id));
    }
    for (id, bias) in row.logit_bias {
        if let Some(logit) = logits.get_mut(*id as usize) {
            *logit += bias;
        }
    }
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

/// The token that would complete `word` after `output`, if its beginning stands there.
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
