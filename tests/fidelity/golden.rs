//! The answers of transformers, as `make_models.py` recorded them.

use std::path::Path;

use serde::Deserialize;

use crate::runner::{Answer, log_softmax};

/// The content of `golden.json`.
#[derive(Deserialize)]
pub(crate) struct Golden {
    pub(crate) runs: Vec<Run>,
}

/// Prompts that ran on a model with one context length.
#[derive(Deserialize)]
pub(crate) struct Run {
    pub(crate) max_model_len: Option<usize>,
    pub(crate) prompts: Vec<Prompt>,
}

#[derive(Deserialize)]
pub(crate) struct Prompt {
    prompt_token_ids: Vec<u32>,
    /// The likeliest tokens after each position of the prompt, and their log-probabilities.
    top_token_ids: Vec<Vec<usize>>,
    top_log_probs: Vec<Vec<f64>>,
    /// The log-probabilities of all tokens after the last position.
    last_log_probs: Vec<f64>,
    pub(crate) greedy_token_ids: Vec<u32>,
    /// The log-probability of each greedy token.
    greedy_log_probs: Vec<f64>,
}

impl Golden {
    pub(crate) fn read(folder: &Path) -> Self {
        let text = std::fs::read(folder.join("golden.json")).unwrap();
        serde_json::from_slice(&text).unwrap()
    }
}

impl Prompt {
    pub(crate) fn ids(&self) -> &[u32] {
        &self.prompt_token_ids
    }

    /// Returns the log-probability of each greedy token.
    pub(crate) fn greedy_log_probs(&self) -> &[f64] {
        &self.greedy_log_probs
    }

    /// Returns the largest difference between a recorded log-probability and that of `answer`.
    pub(crate) fn difference(&self, answer: &Answer) -> f64 {
        // `f64::max` would lose a NaN.
        self.differences(answer).into_iter().fold(0.0, |a, b| if a > b { a } else { b })
    }

    /// Returns the mean difference over the prompt. The greedy tokens are left out because they may
    /// take another path.
    pub(crate) fn mean_difference(&self, answer: &Answer) -> f64 {
        let differences = self.differences_in_prompt(answer);
        differences.iter().sum::<f64>() / differences.len() as f64
    }

    fn differences(&self, answer: &Answer) -> Vec<f64> {
        let mut differences = self.differences_in_prompt(answer);
        let greedy = answer.greedy_rows.iter().zip(&self.greedy_token_ids);
        for ((row, &token), expected) in greedy.zip(&self.greedy_log_probs) {
            differences.push((log_softmax(row)[token as usize] - expected).abs());
        }
        differences
    }

    fn differences_in_prompt(&self, answer: &Answer) -> Vec<f64> {
        assert_eq!(answer.prompt_rows.len(), self.top_token_ids.len());
        let mut differences = Vec::new();
        let top = self.top_token_ids.iter().zip(&self.top_log_probs);
        for (row, (tokens, expected)) in answer.prompt_rows.iter().zip(top) {
            let log_probs = log_softmax(row);
            differences.extend(tokens.iter().zip(expected).map(|(&t, x)| (log_probs[t] - x).abs()));
        }
        let last = log_softmax(answer.prompt_rows.last().unwrap());
        assert_eq!(last.len(), self.last_log_probs.len());
        differences.extend(last.iter().zip(&self.last_log_probs).map(|(a, b)| (a - b).abs()));
        differences
    }
}
