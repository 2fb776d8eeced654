//! Penalties on tokens that have occurred: repetition over prompt and output (Keskar et al. 2019),
//! then frequency and presence over the output (OpenAI's definition).

use super::{SamplingRow, SamplingScratch};

/// Applies the three in vLLM's order.
pub(super) fn apply(logits: &mut [f32], row: &SamplingRow<'_>, scratch: &mut SamplingScratch) {
    if row.repetition_penalty != 1.0 {
        scratch.count(row.prompt_token_ids, logits.len());
        scratch.count(row.output_token_ids, logits.len());
        for id in &scratch.counted {
            let logit = &mut logits[*id as usize];
            if *logit > 0.0 {
                *logit /= row.repetition_penalty;
            } else {
                *logit *= row.repetition_penalty;
            }
        }
        scratch.clear_counts();
    }
    if row.frequency_penalty != 0.0 || row.presence_penalty != 0.0 {
        scratch.count(row.output_token_ids, logits.len());
        for id in &scratch.counted {
            let logit = &mut logits[*id as usize];
            *logit -= row.frequency_penalty * scratch.counts[*id as usize] as f32;
            *logit -= row.presence_penalty;
        }
        scratch.clear_counts();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_penalty_counts_what_it_should() {
        let row = SamplingRow {
            repetition_penalty: 2.0,
            frequency_penalty: 0.5,
            presence_penalty: 0.25,
            prompt_token_ids: &[0, 0, 1, 99],
            output_token_ids: &[2, 2, 3],
            ..SamplingRow::default()
        };
        let mut logits = vec![4.0, -4.0, 4.0, -4.0, 4.0];
        let mut scratch = SamplingScratch::default();
        for _ in 0..2 {
            let mut logits = logits.clone();
            apply(&mut logits, &row, &mut scratch);
            assert_eq!(logits, [2.0, -8.0, 2.0 - 1.0 - 0.25, -8.0 - 0.5 - 0.25, 4.0]);
        }
        apply(&mut logits, &SamplingRow::default(), &mut scratch);
        assert_eq!(logits, [4.0, -4.0, 4.0, -4.0, 4.0]);
    }
}
