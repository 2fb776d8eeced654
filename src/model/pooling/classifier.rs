//! The head of a classifier: logits of classes, and their probabilities.

use serde::{Deserialize, Serialize};
use serde_json::Value;

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

/// The head of classes: HF's `score` of `…ForSequenceClassification`, or that of a reward model.
#[derive(Debug, Clone, PartialEq)]
pub struct Classifier {
    /// From hidden states to logits, the first layer first.
    pub layers: Vec<Dense>,
    /// The calibration of logits.
    pub calibration: Calibration,
    /// The function from logits to the numbers of an answer.
    pub activation: ClassifierActivation,
    /// The names of the classes.
    pub labels: Vec<String>,
    /// How it takes a pair of texts.
    pub pairs: PairInput,
}

/// How a classifier takes a pair of texts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum PairInput {
    /// The tokenizer joins them.
    #[default]
    Joined,
    /// They are one text for the tokenizer: the first, then the second. It is for a language model
    /// that answers a question about both.
    OneText,
    /// They are the messages `query` and `document` of the model's chat template, if it has one.
    Conversation,
    /// They are one text, the second one first, each behind its kind, and [`SCORE_TOKEN`] behind it
    /// (`JinaVLForRanking`).
    DocumentFirst,
    /// They are in the places `{query}` and `{document}` of this text, which has its special tokens
    /// (llama.cpp's template `rerank`).
    Prompt(String),
}

/// The token whose hidden state is the score of a pair with [`PairInput::DocumentFirst`].
pub const SCORE_TOKEN: u32 = 100;

/// Platt scaling: logits become `(logit - mean) / sigma`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Calibration {
    /// The mean.
    pub mean: f32,
    /// The divisor, which is not 0.
    pub sigma: f32,
}

impl Default for Calibration {
    fn default() -> Self {
        Self { mean: 0.0, sigma: 1.0 }
    }
}

impl Classifier {
    /// Returns the number of classes.
    #[must_use]
    pub fn num_classes(&self) -> usize {
        self.layers.last().map_or(0, Dense::outputs)
    }

    /// Returns the calibrated logits of a hidden state.
    #[must_use]
    pub fn logits(&self, hidden: &[f32]) -> Vec<f32> {
        let Calibration { mean, sigma } = self.calibration;
        let mut values = hidden.to_vec();
        for layer in &self.layers {
            values = layer.forward(&values);
        }
        values.iter_mut().for_each(|logit| *logit = (*logit - mean) / sigma);
        values
    }
}

impl ClassifierActivation {
    /// The classes of torch that [`ClassifierActivation::from_torch`] knows.
    pub(super) const TORCH: &str = "torch's Identity, Sigmoid or Softmax";

    /// Returns the function of a class of torch, by its whole name.
    pub(super) fn from_torch(name: &Value) -> Option<Self> {
        match name.as_str()?.rsplit('.').next()? {
            "Identity" => Some(Self::Identity),
            "Sigmoid" => Some(Self::Sigmoid),
            "Softmax" => Some(Self::Softmax),
            _ => None,
        }
    }

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
    use super::super::DenseActivation;
    use super::*;

    fn applied(activation: ClassifierActivation, logits: &[f32]) -> Vec<f32> {
        let mut values = logits.to_vec();
        activation.apply(&mut values);
        values
    }

    #[test]
    fn logits_are_calibrated_after_all_layers() {
        let layer = |weight: &[f32], inputs, activation| Dense {
            weight: weight.to_vec(),
            bias: Vec::new(),
            inputs,
            activation,
            norm: None,
        };
        let classifier = Classifier {
            layers: vec![
                layer(&[1.0, 0.0, 0.0, -1.0], 2, DenseActivation::Relu),
                layer(&[1.0, 10.0], 2, DenseActivation::Identity),
            ],
            calibration: Calibration { mean: 1.0, sigma: 2.0 },
            activation: ClassifierActivation::Sigmoid,
            labels: vec!["LABEL_0".to_owned()],
            pairs: PairInput::Joined,
        };
        assert_eq!(classifier.num_classes(), 1);
        assert_eq!(classifier.logits(&[3.0, 4.0]), [1.0]);
        assert_eq!(classifier.logits(&[-3.0, -0.5]), [2.0]);
    }

    #[test]
    fn large_logits_do_not_overflow() {
        let probs = applied(ClassifierActivation::Softmax, &[1e30, 0.0, 1e30]);
        assert_eq!(probs, [0.5, 0.0, 0.5]);
        assert_eq!(applied(ClassifierActivation::Sigmoid, &[-1e4, 0.0, 1e4]), [0.0, 0.5, 1.0]);
        assert_eq!(applied(ClassifierActivation::Identity, &[3.0]), [3.0]);
    }
}
