//! Stop rules for tokens, in vLLM's order: EOS, stop token ids, length, repetition.

use serde::{Deserialize, Serialize};

use crate::logic::request::ids::TokenId;

/// The conditions on token ids that end a request. `min_tokens` is not here, because the sampler
/// masks the stopping tokens until it is reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopConditions {
    /// The model's end-of-sequence token. Further ones are in `stop_token_ids`.
    pub eos_token_id: Option<TokenId>,
    /// Whether generation continues past `eos_token_id`.
    pub ignore_eos: bool,
    /// Tokens that end the request and are reported as its stop reason.
    pub stop_token_ids: Vec<TokenId>,
    /// Maximum number of output tokens.
    pub max_tokens: usize,
    /// Maximum number of prompt and output tokens.
    pub max_model_len: usize,
    /// Rule that ends an output that repeats itself.
    pub repetition_detection: Option<RepetitionDetection>,
}

/// The definition of a repetition: one pattern several times in a row at the end of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RepetitionDetection {
    /// Length of the longest pattern, in tokens; 0 finds none.
    pub max_pattern_size: usize,
    /// Length of the shortest pattern, in tokens; 0 is taken as 1.
    pub min_pattern_size: usize,
    /// Number of patterns in a row. Below 2 there is no repetition.
    pub min_count: usize,
}

/// The reason why the last output token ends its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StopKind {
    /// The end-of-sequence token.
    Eos,
    /// One of `stop_token_ids`.
    StopToken(TokenId),
    /// `max_tokens` or `max_model_len`.
    Length,
    /// `repetition_detection`.
    Repetition,
}

/// Returns whether the last of `output_token_ids` ends the request, and why.
///
/// `num_tokens_total` counts prompt and output tokens. Call it once for each token that was
/// appended. Without output it returns `None`.
#[must_use]
pub fn check_stop(
    conditions: &StopConditions,
    output_token_ids: &[TokenId],
    num_tokens_total: usize,
) -> Option<StopKind> {
    let &last = output_token_ids.last()?;
    if !conditions.ignore_eos && conditions.eos_token_id == Some(last) {
        return Some(StopKind::Eos);
    }
    if conditions.stop_token_ids.contains(&last) {
        return Some(StopKind::StopToken(last));
    }
    if num_tokens_total >= conditions.max_model_len
        || output_token_ids.len() >= conditions.max_tokens
    {
        return Some(StopKind::Length);
    }
    let repetition = conditions.repetition_detection?;
    is_repeating(output_token_ids, repetition).then_some(StopKind::Repetition)
}

fn is_repeating(tokens: &[TokenId], detection: RepetitionDetection) -> bool {
    let RepetitionDetection { max_pattern_size, min_pattern_size, min_count } = detection;
    if min_count < 2 {
        return false;
    }
    let longest = max_pattern_size.min(tokens.len() / min_count);
    (min_pattern_size.max(1)..=longest).any(|size| {
        // A tail is periodic exactly when it equals itself shifted by one period.
        let tail = &tokens[tokens.len() - size * min_count..];
        tail[size..] == tail[..tail.len() - size]
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn conditions() -> StopConditions {
        StopConditions {
            eos_token_id: Some(2),
            ignore_eos: false,
            stop_token_ids: vec![],
            max_tokens: 100,
            max_model_len: 1_000,
            repetition_detection: None,
        }
    }

    #[test]
    fn eos_stops_unless_ignored() {
        assert_eq!(check_stop(&conditions(), &[7, 2], 12), Some(StopKind::Eos));
        let ignoring = StopConditions { ignore_eos: true, max_tokens: 3, ..conditions() };
        assert_eq!(check_stop(&ignoring, &[7, 2], 12), None);
        assert_eq!(check_stop(&ignoring, &[7, 2, 2], 13), Some(StopKind::Length));
    }

    #[test]
    fn stop_token_42_is_its_own_reason() {
        let stop = StopConditions { stop_token_ids: vec![42, 43], ..conditions() };
        assert_eq!(check_stop(&stop, &[10, 42], 12), Some(StopKind::StopToken(42)));
        assert_eq!(check_stop(&stop, &[42, 10], 12), None, "only the last token counts");
    }

    #[test]
    fn a_context_of_12_after_a_prompt_of_10_leaves_2_tokens() {
        let short = StopConditions { max_model_len: 12, ..conditions() };
        assert_eq!(check_stop(&short, &[5], 11), None);
        assert_eq!(check_stop(&short, &[5, 6], 12), Some(StopKind::Length));
    }

    #[test]
    fn three_times_5_6_is_repetition() {
        let detection =
            RepetitionDetection { max_pattern_size: 4, min_pattern_size: 1, min_count: 3 };
        let looping = StopConditions { repetition_detection: Some(detection), ..conditions() };
        assert_eq!(check_stop(&looping, &[9, 5, 6, 5, 6], 15), None);
        let tokens = [9, 5, 6, 5, 6, 5, 6];
        assert_eq!(check_stop(&looping, &tokens, 17), Some(StopKind::Repetition));
    }

    #[test]
    fn the_order_is_eos_stop_token_length_repetition() {
        let mut all = StopConditions {
            eos_token_id: Some(5),
            ignore_eos: false,
            stop_token_ids: vec![5],
            max_tokens: 2,
            max_model_len: 2,
            repetition_detection: Some(RepetitionDetection {
                max_pattern_size: 1,
                min_pattern_size: 0,
                min_count: 2,
            }),
        };
        assert_eq!(check_stop(&all, &[5, 5], 4), Some(StopKind::Eos));
        all.ignore_eos = true;
        assert_eq!(check_stop(&all, &[5, 5], 4), Some(StopKind::StopToken(5)));
        all.stop_token_ids.clear();
        assert_eq!(check_stop(&all, &[5, 5], 4), Some(StopKind::Length));
        (all.max_tokens, all.max_model_len) = (10, 10);
        assert_eq!(check_stop(&all, &[5, 5], 4), Some(StopKind::Repetition));
        all.repetition_detection = None;
        assert_eq!(check_stop(&all, &[5, 5], 4), None);
        assert_eq!(check_stop(&all, &[], 100), None, "nothing was generated yet");
    }

    proptest! {
        /// Compares with the definition: the last `count` patterns are the same slice.
        #[test]
        fn repetition_is_the_same_slice_again(
            tokens in prop::collection::vec(0u32..3, 0..24),
            max_pattern_size in 0usize..6,
            min_pattern_size in 0usize..6,
            min_count in 0usize..5,
        ) {
            let naive = (min_pattern_size.max(1)..=max_pattern_size).any(|size| {
                min_count >= 2 && size * min_count <= tokens.len() && {
                    let mut patterns = tokens.rchunks(size).take(min_count);
                    let last = patterns.next();
                    patterns.all(|pattern| Some(pattern) == last)
                }
            });
            let detection = RepetitionDetection { max_pattern_size, min_pattern_size, min_count };
            prop_assert_eq!(is_repeating(&tokens, detection), naive);
        }
    }
}
