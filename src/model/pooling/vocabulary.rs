//! The head of a masked language model: a weight for each token of the vocabulary.

use std::{fmt, sync::Arc};

use crate::model::LmHead;

/// From hidden states to logits of the vocabulary, on the device. SPLADE pools them to a sparse
/// vector (<https://arxiv.org/abs/2107.05720>).
#[derive(Clone)]
pub struct VocabularyHead {
    /// The head.
    pub head: Arc<dyn LmHead>,
    /// Number of tokens of the vocabulary.
    pub vocab_size: usize,
    /// The pooling of the logits of all tokens of a prompt.
    pub pooling: WeightPooling,
}

/// How logits of the vocabulary become weights: `SpladePooling` of sentence-transformers. The
/// weight of a logit is `ln(1 + max(x, 0))`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WeightPooling {
    /// Whether the weights of all tokens are summed. Otherwise, the largest one counts.
    pub sums: bool,
    /// Whether the weight of a logit is `ln(1 + ln(1 + max(x, 0)))`.
    pub is_twice: bool,
}

impl WeightPooling {
    /// Returns the element of a row without tokens.
    pub(super) fn start(self) -> f32 {
        if self.sums { 0.0 } else { f32::NEG_INFINITY }
    }

    /// Adds the logits of one token to a row: their weights, or the largest logits. A NaN stays.
    pub(super) fn add(self, row: &mut [f32], logits: &[f32]) {
        for (pooled, logit) in row.iter_mut().zip(logits) {
            if self.sums {
                *pooled += self.weight(*logit);
            } else if !(*logit <= *pooled || pooled.is_nan()) {
                *pooled = *logit;
            }
        }
    }

    /// Returns the weight of a logit.
    fn weight(self, logit: f32) -> f32 {
        let once = if logit.is_nan() { logit } else { logit.max(0.0).ln_1p() };
        if self.is_twice { once.ln_1p() } else { once }
    }
}

impl VocabularyHead {
    /// Returns the weights of a row to which all tokens were added.
    pub(super) fn finish(&self, mut row: Vec<f32>) -> Vec<f32> {
        if !self.pooling.sums {
            // The function grows, so the largest logit has the largest weight.
            row.iter_mut().for_each(|logit| *logit = self.pooling.weight(*logit));
        }
        row
    }
}

impl fmt::Debug for VocabularyHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VocabularyHead")
            .field("vocab_size", &self.vocab_size)
            .field("pooling", &self.pooling)
            .finish_non_exhaustive()
    }
}

/// Two heads are equal if they are the same one.
impl PartialEq for VocabularyHead {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.head, &other.head) && self.pooling == other.pooling
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_of_tokens_are_summed_or_the_largest_counts() {
        let pooled = |pooling: WeightPooling| {
            let mut row = vec![pooling.start(); 2];
            for logits in [[1.0, -1.0], [3.0, -2.0]] {
                pooling.add(&mut row, &logits);
            }
            row
        };
        let largest = WeightPooling::default();
        assert_eq!(pooled(largest), [3.0, -1.0]);
        assert_eq!((largest.weight(3.0), largest.weight(-1.0)), (3.0_f32.ln_1p(), 0.0));
        let sums = WeightPooling { sums: true, ..largest };
        assert_eq!(pooled(sums), [1.0_f32.ln_1p() + 3.0_f32.ln_1p(), 0.0]);
        let twice = WeightPooling { sums: true, is_twice: true };
        assert_eq!(pooled(twice)[0], 1.0_f32.ln_1p().ln_1p() + 3.0_f32.ln_1p().ln_1p());
        assert!(largest.weight(f32::NAN).is_nan());
    }
}
