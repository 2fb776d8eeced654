//! The pooler: from hidden states to the result of a request.

use super::{Classifier, Dense};
use crate::config::{PoolerTask, SequencePooling, TokenPooling};

/// The head that turns hidden states into vectors or classes.
#[derive(Debug, Clone, PartialEq)]
pub struct Pooler {
    /// The tasks that the model has, the one that its routes are open for first.
    pub tasks: Vec<PoolerTask>,
    /// The pooling of whole prompts.
    pub sequence: SequencePooling,
    /// The pooling of each token.
    pub token: TokenPooling,
    /// The token whose positions have results with [`TokenPooling::Step`].
    pub step_tag_id: Option<u32>,
    /// The elements of a row that [`TokenPooling::Step`] returns. Empty: all.
    pub returned_token_ids: Vec<u32>,
    /// Number of elements of a hidden state.
    pub hidden_size: usize,
    /// Layers behind the pooling of vectors, the first one first.
    pub dense: Vec<Dense>,
    /// The head of classes, for tasks that classify.
    pub classifier: Option<Classifier>,
    /// Whether vectors are normalized, and logits become probabilities, by default.
    pub activation: bool,
    /// The sizes to which vectors may be cut.
    pub matryoshka: Matryoshka,
    /// Number of elements that vectors keep by default.
    pub dimensions: Option<u32>,
    /// The prompts of sentence-transformers, by the kind of a text.
    pub prompts: Vec<(String, String)>,
}

/// The sizes to which a model was trained to cut its vectors.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Matryoshka {
    /// None.
    #[default]
    Fixed,
    /// Any size (`is_matryoshka`).
    Any,
    /// These sizes (`matryoshka_dimensions`).
    Listed(Vec<u32>),
}

/// The hidden states of one request that are computed so far, as far as its result needs them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Gathered {
    /// Rows of `hidden_size` elements that are kept.
    rows: Vec<f32>,
    /// The sums of all rows, for a mean.
    sums: Vec<f64>,
    /// Number of tokens computed, from the first one on.
    num_tokens: usize,
}

/// The result of a request: rows of `width` elements.
#[derive(Debug, Clone, PartialEq)]
pub struct PoolerOutput {
    /// The rows, one after the other.
    pub values: Vec<f32>,
    /// Number of elements in a row.
    pub width: usize,
}

/// The reason why a result cannot be computed from the hidden states that were gathered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PoolerError {
    /// Tokens before the first hidden state are missing.
    #[error("hidden states of {missing} tokens are missing before a pooling over all tokens")]
    Missing {
        /// Number of tokens without a hidden state.
        missing: usize,
    },
    /// The pooler has no such task.
    #[error("the pooler has no head for {0:?}")]
    NoHead(PoolerTask),
}

impl Pooler {
    /// Returns whether the hidden state of the last token decides a task's result.
    #[must_use]
    pub fn is_last_token(&self, task: PoolerTask) -> bool {
        !is_by_token(task) && self.sequence == SequencePooling::Last
    }

    /// Returns the number of elements in a row of a task's result, before a cut.
    #[must_use]
    pub fn width(&self, task: PoolerTask) -> usize {
        let classes = self.classifier.as_ref().map_or(0, |head| head.score.outputs());
        let is_step = is_by_token(task) && self.token == TokenPooling::Step;
        if is_step && !self.returned_token_ids.is_empty() {
            return self.returned_token_ids.len();
        }
        match task {
            PoolerTask::Classify | PoolerTask::TokenClassify => classes,
            PoolerTask::Embed | PoolerTask::TokenEmbed => {
                self.dense.last().map_or(self.hidden_size, Dense::outputs)
            }
        }
    }

    /// Returns the rows of a chunk, of which `start..end` are the positions in a prompt of
    /// `num_tokens`, that a task's result needs.
    #[must_use]
    pub fn wanted(
        &self,
        task: PoolerTask,
        start: usize,
        end: usize,
        num_tokens: usize,
    ) -> std::ops::Range<usize> {
        if is_by_token(task) {
            return start..end;
        }
        match self.sequence {
            SequencePooling::Mean => start..end,
            SequencePooling::Cls => start..end.min(start.max(1)),
            SequencePooling::Last if end == num_tokens => end - 1..end,
            SequencePooling::Last => end..end,
        }
    }

    /// Adds the wanted rows of a chunk that begins at `start`.
    ///
    /// # Errors
    /// [`PoolerError::Missing`] if hidden states before the chunk are needed and were not added.
    pub fn gather(
        &self,
        task: PoolerTask,
        gathered: &mut Gathered,
        start: usize,
        rows: &[f32],
        end: usize,
    ) -> Result<(), PoolerError> {
        if !self.is_last_token(task) && gathered.num_tokens != start {
            return Err(PoolerError::Missing { missing: start.abs_diff(gathered.num_tokens) });
        }
        gathered.num_tokens = end;
        if is_by_token(task) || self.sequence != SequencePooling::Mean {
            gathered.rows.extend_from_slice(rows);
            return Ok(());
        }
        gathered.sums.resize(self.hidden_size, 0.0);
        for row in rows.chunks_exact(self.hidden_size) {
            gathered.sums.iter_mut().zip(row).for_each(|(sum, x)| *sum += f64::from(*x));
        }
        Ok(())
    }

    /// Returns a task's result for a prompt whose hidden states are all gathered. `activation`
    /// normalizes vectors and makes probabilities of logits. `dimensions` cuts vectors before.
    ///
    /// # Errors
    /// [`PoolerError::NoHead`] if the model does not have the task.
    pub fn finish(
        &self,
        task: PoolerTask,
        gathered: Gathered,
        prompt: &[u32],
        activation: bool,
        dimensions: Option<u32>,
    ) -> Result<PoolerOutput, PoolerError> {
        let Gathered { mut rows, sums, num_tokens } = gathered;
        if !sums.is_empty() {
            rows = sums.iter().map(|sum| (sum / num_tokens as f64) as f32).collect();
        }
        let is_step = is_by_token(task) && self.token == TokenPooling::Step;
        let mut values = Vec::new();
        let mut width = 0;
        for (index, row) in rows.chunks_exact(self.hidden_size.max(1)).enumerate() {
            let is_tagged = self.step_tag_id.is_none_or(|tag| prompt.get(index) == Some(&tag));
            if is_step && !is_tagged {
                continue;
            }
            let mut row = self.row(task, row, activation, dimensions)?;
            if is_step && !self.returned_token_ids.is_empty() {
                let element = |&id: &u32| row.get(id as usize).copied();
                row = self.returned_token_ids.iter().filter_map(element).collect();
            }
            width = row.len();
            values.append(&mut row);
        }
        if values.is_empty() {
            width = self.width(task);
        }
        Ok(PoolerOutput { values, width })
    }

    fn row(
        &self,
        task: PoolerTask,
        hidden: &[f32],
        activation: bool,
        dimensions: Option<u32>,
    ) -> Result<Vec<f32>, PoolerError> {
        match (task, &self.classifier) {
            (PoolerTask::Classify | PoolerTask::TokenClassify, Some(classifier)) => {
                let mut logits = classifier.score.forward(hidden);
                if activation {
                    classifier.activation.apply(&mut logits);
                }
                Ok(logits)
            }
            (PoolerTask::Classify | PoolerTask::TokenClassify, None) => {
                Err(PoolerError::NoHead(task))
            }
            (PoolerTask::Embed | PoolerTask::TokenEmbed, _) => {
                let mut vector = hidden.to_vec();
                for dense in &self.dense {
                    vector = dense.forward(&vector);
                }
                if let Some(count) = dimensions.or(self.dimensions) {
                    vector.truncate(count as usize);
                }
                if activation {
                    normalize(&mut vector);
                }
                Ok(vector)
            }
        }
    }
}

/// Returns whether each token has a result.
fn is_by_token(task: PoolerTask) -> bool {
    matches!(task, PoolerTask::TokenEmbed | PoolerTask::TokenClassify)
}

/// Divides a vector by its length, or by 1e-12 if that is more, as torch's `normalize` does.
fn normalize(vector: &mut [f32]) {
    let squares: f64 = vector.iter().map(|x| f64::from(*x) * f64::from(*x)).sum();
    let length = squares.sqrt().max(1e-12);
    vector.iter_mut().for_each(|x| *x = (f64::from(*x) / length) as f32);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pooler(sequence: SequencePooling) -> Pooler {
        Pooler {
            tasks: vec![PoolerTask::Embed, PoolerTask::TokenEmbed],
            sequence,
            token: TokenPooling::All,
            step_tag_id: None,
            returned_token_ids: Vec::new(),
            hidden_size: 2,
            dense: Vec::new(),
            classifier: None,
            activation: true,
            matryoshka: Matryoshka::Fixed,
            dimensions: None,
            prompts: Vec::new(),
        }
    }

    /// Three hidden states.
    const HIDDEN: [f32; 6] = [3.0, 4.0, 5.0, 0.0, 1.0, 2.0];

    /// Returns the result when the prompt is computed in chunks that end at `ends`.
    fn pooled(
        pooler: &Pooler,
        task: PoolerTask,
        ends: &[usize],
        activation: bool,
    ) -> Result<Vec<f32>, PoolerError> {
        let mut gathered = Gathered::default();
        let mut start = 0;
        for &end in ends {
            let wanted = pooler.wanted(task, start, end, 3);
            let rows = &HIDDEN[2 * wanted.start..2 * wanted.end];
            pooler.gather(task, &mut gathered, start, rows, end)?;
            start = end;
        }
        Ok(pooler.finish(task, gathered, &[7, 8, 7], activation, None)?.values)
    }

    #[test]
    fn a_result_does_not_depend_on_the_chunks() {
        for (sequence, expected) in [
            (SequencePooling::Last, [1.0, 2.0]),
            (SequencePooling::Cls, [3.0, 4.0]),
            (SequencePooling::Mean, [3.0, 2.0]),
        ] {
            for ends in [&[3][..], &[1, 3], &[2, 3], &[1, 2, 3]] {
                let result = pooled(&pooler(sequence), PoolerTask::Embed, ends, false);
                assert_eq!(result, Ok(expected.to_vec()), "{sequence:?} {ends:?}");
            }
        }
        for ends in [&[3][..], &[1, 2, 3]] {
            let result =
                pooled(&pooler(SequencePooling::Last), PoolerTask::TokenEmbed, ends, false);
            assert_eq!(result, Ok(HIDDEN.to_vec()));
        }
    }

    #[test]
    fn hidden_states_that_are_missing_are_no_result() {
        let mean = pooler(SequencePooling::Mean);
        let mut gathered = Gathered::default();
        let refused = mean.gather(PoolerTask::Embed, &mut gathered, 1, &HIDDEN[2..], 3);
        assert_eq!(refused, Err(PoolerError::Missing { missing: 1 }));
        let last = pooler(SequencePooling::Last);
        assert_eq!(last.gather(PoolerTask::Embed, &mut gathered, 1, &HIDDEN[4..], 3), Ok(()));
    }

    #[test]
    fn vectors_are_cut_before_they_are_normalized() {
        let cls = pooler(SequencePooling::Cls);
        assert_eq!(pooled(&cls, PoolerTask::Embed, &[3], true), Ok(vec![0.6, 0.8]));
        let cut = Pooler { dimensions: Some(1), ..cls };
        assert_eq!(pooled(&cut, PoolerTask::Embed, &[3], true), Ok(vec![1.0]));
        assert!(pooled(&cut, PoolerTask::Classify, &[3], true).is_err());
    }

    #[test]
    fn steps_are_the_tokens_of_their_tag() {
        let step = Pooler {
            token: TokenPooling::Step,
            step_tag_id: Some(7),
            returned_token_ids: vec![1],
            ..pooler(SequencePooling::Last)
        };
        let result = pooled(&step, PoolerTask::TokenEmbed, &[3], false);
        assert_eq!((result, step.width(PoolerTask::TokenEmbed)), (Ok(vec![4.0, 2.0]), 1));
    }
}
