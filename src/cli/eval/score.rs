//! Scores of predictions of a text, alone and compared with others.

use crate::api::{TokenId, TokenLogprobs};

/// A model's prediction of one token of a text.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Prediction {
    /// Natural logarithm of the probability that the model gave to the actual token.
    pub(super) logprob: f64,
    /// The likeliest token.
    pub(super) top: TokenId,
    /// Whether the likeliest token is the actual token.
    pub(super) is_right: bool,
}

impl Prediction {
    /// Returns the prediction from a position's log-probabilities, which include the likeliest
    /// token.
    pub(super) fn new(row: &TokenLogprobs) -> Option<Self> {
        let actual = row.first()?;
        let top = row.iter().find(|entry| entry.rank == 1).unwrap_or(actual);
        Some(Self {
            logprob: f64::from(actual.logprob),
            top: top.token_id,
            is_right: top.token_id == actual.token_id,
        })
    }
}

/// Figures of one way to run a model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Score {
    /// e to the mean of the negative log-probabilities.
    pub(super) perplexity: f64,
    /// Standard error of the perplexity, if tokens are independent.
    pub(super) perplexity_error: f64,
    /// Share of tokens that were predicted as likeliest.
    pub(super) top1_accuracy: f64,
}

impl Score {
    /// Returns the score of at least one prediction.
    pub(super) fn new(predictions: &[Prediction]) -> Self {
        let mean = |value: &dyn Fn(&Prediction) -> f64| mean(predictions.iter().map(value));
        let loss = mean(&|p| -p.logprob);
        let variance = mean(&|p| (-p.logprob - loss).powi(2));
        let perplexity = loss.exp();
        let perplexity_error = perplexity * (variance / predictions.len() as f64).sqrt();
        let top1_accuracy = mean(&|p| f64::from(p.is_right));
        Self { perplexity, perplexity_error, top1_accuracy }
    }
}

/// The distance between two ways to run a model, on the same tokens.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Distance {
    /// Share of positions where both have the same likeliest token.
    pub(super) top1_agreement: f64,
    /// Mean absolute difference of log-probabilities.
    pub(super) mean_logprob_difference: f64,
}

impl Distance {
    /// Returns the distance between predictions of the same tokens, at least one.
    pub(super) fn new(a: &[Prediction], b: &[Prediction]) -> Self {
        let pairs = || a.iter().zip(b);
        Self {
            top1_agreement: mean(pairs().map(|(a, b)| f64::from(a.top == b.top))),
            mean_logprob_difference: mean(pairs().map(|(a, b)| (a.logprob - b.logprob).abs())),
        }
    }
}

fn mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len() as f64;
    values.sum::<f64>() / count
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::api::Logprob;

    fn prediction(p: f64, top: TokenId, is_right: bool) -> Prediction {
        Prediction { logprob: p.ln(), top, is_right }
    }

    #[test]
    fn a_coin_has_a_perplexity_of_two() {
        let score = Score::new(&[prediction(0.5, 1, true), prediction(0.5, 1, false)]);
        assert!((score.perplexity - 2.0).abs() < 1e-12);
        assert_eq!((score.perplexity_error, score.top1_accuracy), (0.0, 0.5));
        let score = Score::new(&[prediction(1.0, 1, true), prediction(0.25, 1, false)]);
        assert!((score.perplexity - 2.0).abs() < 1e-12);
        // The losses are 0 and ln 4, so their standard deviation is ln 2.
        assert!((score.perplexity_error - 2.0 * 2f64.ln() / 2f64.sqrt()).abs() < 1e-12);
    }

    #[test]
    fn distances_are_taken_position_by_position() {
        let a = [prediction(0.5, 1, true), prediction(0.5, 2, true)];
        let b = [prediction(0.25, 1, true), prediction(1.0, 3, false)];
        let distance = Distance::new(&a, &b);
        assert_eq!(distance.top1_agreement, 0.5);
        assert!((distance.mean_logprob_difference - 2f64.ln()).abs() < 1e-12);
        let same = Distance::new(&a, &a);
        assert_eq!((same.top1_agreement, same.mean_logprob_difference), (1.0, 0.0));
    }

    #[test]
    fn the_likeliest_token_is_the_one_of_rank_one() {
        let entry = |token_id, logprob, rank| Logprob { token_id, logprob, rank };
        let row = vec![entry(7, -2.0, 5), entry(3, -0.5, 1)];
        let expected = Prediction { logprob: -2.0, top: 3, is_right: false };
        assert_eq!(Prediction::new(&row), Some(expected));
        let row = vec![entry(3, -0.5, 1)];
        assert!(Prediction::new(&row).unwrap().is_right);
        assert_eq!(Prediction::new(&Vec::new()), None);
    }
}
