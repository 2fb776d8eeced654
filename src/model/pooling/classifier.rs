//! The head of a classifier: logits of classes, and their probabilities.

use super::Dense;

/// The function from logits to the numbers of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClassifierActivation {
    /// Probabilities that add up to 1.
    Softmax,
    /// A probability for each class by itself.
    Sigmoid,
    /// The logits, of a regression.
    Identity,
}

/// HF's `score` of `…ForSequenceClassification`.
#[derive(Debug, Clone, PartialEq)]
pub struct Classifier {
    /// From hidden states to logits.
    pub score: Dense,
    /// The function from logits to the numbers of an answer.
    pub activation: ClassifierActivation,
    /// The names of the classes.
    pub labels: Vec<String>,
}

impl ClassifierActivation {
    /// Applies the function to a row of logits.
    pub fn apply(self, logits: &mut [f32]) {
        match self {
            Self::Identity => {}
            Self::Sigmoid => {
                logits.iter_mut().for_each(|x| *x = (1.0 / (1.0 + f64::from(-*x).exp())) as f32);
            }
            Self::Softmax => {
                let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let powers: Vec<f64> =
                    logits.iter().map(|x| (f64::from(*x) - f64::from(most)).exp()).collect();
                let sum: f64 = powers.iter().sum();
                logits.iter_mut().zip(powers).for_each(|(x, power)| *x = (power / sum) as f32);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(activation: ClassifierActivation, logits: &[f32]) -> Vec<f32> {
        let mut values = logits.to_vec();
        activation.apply(&mut values);
        values
    }

    #[test]
    fn large_logits_do_not_overflow() {
        let probs = applied(ClassifierActivation::Softmax, &[1e30, 0.0, 1e30]);
        assert_eq!(probs, [0.5, 0.0, 0.5]);
        assert_eq!(applied(ClassifierActivation::Sigmoid, &[-1e4, 0.0, 1e4]), [0.0, 0.5, 1.0]);
        assert_eq!(applied(ClassifierActivation::Identity, &[3.0]), [3.0]);
    }
}
