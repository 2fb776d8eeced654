//! The pooler: from hidden states to the result of a request.

use std::ops::Range;

use super::{
    Classifier, Dense, Folded, Pooling, Poolings, RankingTokens, Stage, TokenHeads, VocabularyHead,
};
use crate::config::{PoolerTask, TokenPooling};

/// The head that turns hidden states into vectors or classes.
#[derive(Debug, Clone, PartialEq)]
pub struct Pooler {
    /// The tasks that the model has, the one that its routes are open for first.
    pub tasks: Vec<PoolerTask>,
    /// The pooling of whole prompts.
    pub sequence: Poolings,
    /// The pooling of each token.
    pub token: TokenPooling,
    /// The token whose positions have results with [`TokenPooling::Step`].
    pub step_tag_id: Option<u32>,
    /// The elements of a row, before its activation, that [`TokenPooling::Step`] returns. Empty:
    /// all.
    pub returned_token_ids: Vec<u32>,
    /// Number of elements of a hidden state.
    pub hidden_size: usize,
    /// The steps behind the pooling of vectors, the first one first.
    pub stages: Vec<Stage>,
    /// The head of classes, for tasks that classify.
    pub classifier: Option<Classifier>,
    /// Whether a mean for a classification is that of the logits of all tokens, and not that of
    /// their hidden states.
    pub pools_classes: bool,
    /// The head of weights of the vocabulary. With it, [`Pooler::gather`] gets logits in place of
    /// hidden states, and a vector is sparse: for each token of the vocabulary its largest weight.
    pub vocabulary: Option<VocabularyHead>,
    /// Whether vectors are normalized, and logits become probabilities, by default.
    pub activation: bool,
    /// The sizes to which vectors may be cut.
    pub matryoshka: Matryoshka,
    /// Number of elements that vectors keep by default.
    pub dimensions: Option<u32>,
    /// The same by the files of sentence-transformers (`truncate_dim`), where requests and settings
    /// do not say. Such a vector is cut after its division by the length.
    pub truncate_dim: Option<u32>,
    /// Maximum number of tokens of a text whose vector is the mean of the vectors of its pieces.
    /// `None`: texts are not cut into pieces.
    pub max_embed_len: Option<usize>,
    /// The text before a text, by its kind: the config's `task_instructions`, or the prompts of
    /// sentence-transformers.
    pub prompts: Vec<(String, String)>,
    /// Whether the tokens of that text are left out of the pooling.
    pub excludes_prompt: bool,
    /// The tokens of documents that a comparison of vectors of tokens leaves out.
    pub skipped_tokens: Vec<u32>,
    /// The layers of results by token, of a model that has them beside the vector of a text.
    pub token_heads: Option<TokenHeads>,
    /// The tokens that have results, of a model that ranks documents in one prompt.
    pub ranking: Option<RankingTokens>,
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

/// A pooling of one prompt.
#[derive(Debug, Clone, Copy)]
pub struct PoolerRequest<'a> {
    /// The result that is asked for.
    pub task: PoolerTask,
    /// Whether vectors are normalized, and logits become probabilities.
    pub activation: bool,
    /// Number of elements that a vector keeps. `None` is the model's default.
    pub dimensions: Option<u32>,
    /// The tokens of the prompt.
    pub prompt: &'a [u32],
    /// The position after each chunk of the prompt, of a mean. Empty: the prompt is one chunk.
    pub chunk_ends: &'a [u32],
    /// Number of first tokens that the pooling of a vector leaves out.
    pub num_left_out: usize,
    /// The classifier of the request's adapter, in place of the model's.
    pub classifier: Option<&'a Classifier>,
}

impl PoolerRequest<'_> {
    /// Returns the position of the first token that counts.
    fn first(&self) -> usize {
        let is_within = self.task == PoolerTask::Embed && self.num_left_out < self.prompt.len();
        if is_within { self.num_left_out } else { 0 }
    }
}

/// The part of one request's result that is computed so far.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Gathered {
    /// Rows of the result.
    values: Vec<f32>,
    /// The sums of all hidden states of each chunk, or of all logits, for a mean.
    sums: Vec<f64>,
    /// Hidden states for several poolings at once, or for one that has no field above.
    folded: Folded,
    /// The pooled logit or weight of each token of the vocabulary, for a sparse vector.
    weights: Vec<f32>,
    /// Rows of the result that stand behind all others.
    behind: Vec<f32>,
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
        !is_by_token(task) && self.sequence.is(Pooling::Last) && self.vocabulary.is_none()
    }

    /// Returns whether a task's result is the mean of all hidden states of a prompt.
    #[must_use]
    pub fn is_mean(&self, task: PoolerTask) -> bool {
        let is_mean = self.sequence.is(Pooling::Mean) && self.vocabulary.is_none();
        is_mean && !is_by_token(task)
    }

    /// Returns the number of elements of a row that [`Pooler::gather`] gets.
    #[must_use]
    pub fn gathered_width(&self) -> usize {
        self.vocabulary.as_ref().map_or(self.hidden_size, |head| head.vocab_size)
    }

    /// Returns the number of elements in a row of a task's result, before a cut.
    #[must_use]
    pub fn width(&self, task: PoolerTask) -> usize {
        let classes = self.classifier.as_ref().map_or(0, Classifier::num_classes);
        if self.is_step(task) && !self.returned_token_ids.is_empty() {
            return self.returned_token_ids.len();
        }
        if let Some(layer) = self.token_layer(task) {
            return layer.outputs();
        }
        match task {
            PoolerTask::Classify | PoolerTask::TokenClassify => classes,
            PoolerTask::Embed | PoolerTask::TokenEmbed => {
                let pooled = match is_by_token(task) || self.vocabulary.is_some() {
                    true => self.gathered_width(),
                    false => self.hidden_size * self.sequence.count(),
                };
                self.stages.iter().fold(pooled, |width, stage| stage.outputs(width))
            }
        }
    }

    /// Returns the positions of a chunk whose hidden states a request's result needs.
    #[must_use]
    pub fn wanted(&self, request: &PoolerRequest<'_>, chunk: Range<usize>) -> Range<usize> {
        let Range { start, end } = chunk;
        if is_by_token(request.task) || self.vocabulary.is_some() {
            return start..end;
        }
        self.sequence.wanted(start..end, request.prompt.len(), request.first())
    }

    /// Adds the wanted hidden states of a chunk. Only the rows of the result are kept, or the sum
    /// of hidden states for a mean.
    ///
    /// # Errors
    /// [`PoolerError::Missing`] if hidden states before the chunk are needed and were not added.
    /// [`PoolerError::NoHead`] if the model does not have the task.
    pub fn gather(
        &self,
        request: &PoolerRequest<'_>,
        gathered: &mut Gathered,
        chunk: Range<usize>,
        hidden: &[f32],
    ) -> Result<(), PoolerError> {
        let Range { start, end } = chunk;
        if !self.is_last_token(request.task) && gathered.num_tokens != start {
            return Err(PoolerError::Missing { missing: start.abs_diff(gathered.num_tokens) });
        }
        gathered.num_tokens = end;
        if let Some(head) = &self.vocabulary {
            gathered.add_weights(hidden, head);
            return Ok(());
        }
        let is_mean = self.is_mean(request.task);
        if self.is_folded(request.task) {
            let (folded, first) = (&mut gathered.folded, request.first());
            folded.add(&self.sequence, start, first, hidden, self.hidden_size);
            return Ok(());
        }
        if self.has_mean_of_classes(request.task) {
            let classifier = self.classifier_of(request)?;
            gathered.sums.resize(classifier.num_classes(), 0.0);
            for row in hidden.chunks_exact(self.hidden_size.max(1)) {
                let sums = gathered.sums.iter_mut().zip(classifier.logits(row));
                sums.for_each(|(sum, logit)| *sum += f64::from(logit));
            }
            return Ok(());
        }
        if is_mean {
            gathered.sums.resize(self.hidden_size * request.chunk_ends.len().max(1), 0.0);
        }
        for (position, row) in (start..).zip(hidden.chunks_exact(self.hidden_size.max(1))) {
            if is_mean && position < request.first() {
                continue;
            }
            if is_mean {
                let chunk = request.chunk_ends.partition_point(|end| *end as usize <= position);
                let sums = gathered.sums.iter_mut().skip(chunk * self.hidden_size);
                sums.zip(row).for_each(|(sum, x)| *sum += f64::from(*x));
            } else if self.keeps(request, position) {
                let mut row = self.row(request, row)?;
                let is_behind = self.is_of_query(request, position);
                let rows = if is_behind { &mut gathered.behind } else { &mut gathered.values };
                rows.append(&mut row);
            }
        }
        Ok(())
    }

    /// Returns the result for a prompt whose hidden states are all gathered.
    ///
    /// # Errors
    /// [`PoolerError::NoHead`] if the model does not have the task.
    pub fn finish(
        &self,
        request: &PoolerRequest<'_>,
        gathered: Gathered,
    ) -> Result<PoolerOutput, PoolerError> {
        let Gathered { mut values, sums, num_tokens, folded, weights, mut behind } = gathered;
        values.append(&mut behind);
        if let Some(head) = &self.vocabulary {
            values = head.finish(weights);
            self.finish_vector(request, &mut values);
        }
        if self.is_folded(request.task) {
            values = self.row(request, &folded.finish(&self.sequence))?;
        }
        if self.has_mean_of_classes(request.task) {
            values = sums.iter().map(|sum| (sum / num_tokens as f64) as f32).collect();
            if request.activation {
                self.classifier_of(request)?.activation.apply(&mut values);
            }
            return Ok(PoolerOutput { width: values.len(), values });
        }
        let mut start = request.first();
        for (chunk, sums) in sums.chunks_exact(self.hidden_size.max(1)).enumerate() {
            let end = request.chunk_ends.get(chunk).map_or(num_tokens, |end| *end as usize);
            let count = (end - start.min(end)).max(1) as f64;
            let mean: Vec<f32> = sums.iter().map(|sum| (sum / count) as f32).collect();
            values.append(&mut self.row(request, &mean)?);
            start = start.max(end);
        }
        let is_vector = matches!(request.task, PoolerTask::Embed | PoolerTask::TokenEmbed);
        let cut = request.dimensions.or(self.dimensions).filter(|_| is_vector);
        let cut = cut.or_else(|| self.cut_at_last(request));
        let width = self.width(request.task);
        Ok(PoolerOutput { values, width: cut.map_or(width, |cut| width.min(cut as usize)) })
    }

    /// Returns whether a token has a row in the result.
    fn keeps(&self, request: &PoolerRequest<'_>, position: usize) -> bool {
        let is_tagged = |tag: u32| request.prompt.get(position) == Some(&tag);
        let is_kept = !self.is_step(request.task) || self.step_tag_id.is_none_or(is_tagged);
        let token = request.prompt.get(position);
        let is_ranked = |it: &RankingTokens| [Some(&it.document), Some(&it.query)].contains(&token);
        let is_kept = is_kept && self.ranking.as_ref().is_none_or(is_ranked);
        is_kept && self.token_heads.as_ref().is_none_or(|heads| heads.keeps(request, position))
    }

    /// Returns whether a token stands behind the query of a ranking.
    fn is_of_query(&self, request: &PoolerRequest<'_>, position: usize) -> bool {
        let token = request.prompt.get(position);
        self.ranking.is_some_and(|it| token == Some(&it.query))
    }

    /// Returns the layer of a task's results by token.
    fn token_layer(&self, task: PoolerTask) -> Option<&Dense> {
        self.token_heads.as_ref()?.layer(task)
    }

    fn is_step(&self, task: PoolerTask) -> bool {
        is_by_token(task) && self.token == TokenPooling::Step
    }

    /// Returns whether hidden states are folded for several poolings, or for a rare one.
    fn is_folded(&self, task: PoolerTask) -> bool {
        !is_by_token(task) && self.vocabulary.is_none() && self.sequence.is_folded()
    }

    /// Returns whether a task's result is the mean of the logits of all tokens.
    fn has_mean_of_classes(&self, task: PoolerTask) -> bool {
        self.pools_classes && task == PoolerTask::Classify && self.is_mean(task)
    }

    /// Returns the classifier of a request.
    fn classifier_of<'a>(
        &'a self,
        request: &PoolerRequest<'a>,
    ) -> Result<&'a Classifier, PoolerError> {
        let own = request.classifier.or(self.classifier.as_ref());
        own.ok_or(PoolerError::NoHead(request.task))
    }

    /// Returns the result of one hidden state.
    fn row(&self, request: &PoolerRequest<'_>, hidden: &[f32]) -> Result<Vec<f32>, PoolerError> {
        if let Some(layer) = self.token_layer(request.task) {
            let mut values = layer.forward(hidden);
            match request.task {
                PoolerTask::TokenClassify if request.activation => {
                    values.iter_mut().for_each(|weight| *weight = weight.max(0.0));
                }
                PoolerTask::TokenClassify => {}
                _ => self.finish_vector(request, &mut values),
            }
            return Ok(values);
        }
        let classifier = match request.task {
            PoolerTask::Embed | PoolerTask::TokenEmbed => None,
            PoolerTask::Classify | PoolerTask::TokenClassify => Some(self.classifier_of(request)?),
        };
        let mut values = match classifier {
            Some(classifier) => classifier.logits(hidden),
            None => self.stages.iter().fold(hidden.to_vec(), |vector, stage| stage.forward(vector)),
        };
        if self.is_step(request.task) && !self.returned_token_ids.is_empty() {
            let element = |&id: &u32| values.get(id as usize).copied();
            values = self.returned_token_ids.iter().filter_map(element).collect();
        }
        match classifier {
            Some(classifier) if request.activation => classifier.activation.apply(&mut values),
            Some(_) => {}
            None => {
                self.finish_vector(request, &mut values);
            }
        }
        Ok(values)
    }

    /// Cuts and normalizes a vector.
    fn finish_vector(&self, request: &PoolerRequest<'_>, values: &mut Vec<f32>) {
        if let Some(count) = request.dimensions.or(self.dimensions) {
            values.truncate(count as usize);
        }
        if request.activation {
            normalize(values);
        }
        if let Some(count) = self.cut_at_last(request) {
            values.truncate(count as usize);
        }
    }

    /// Returns the number of elements that a vector keeps after its division by the length.
    fn cut_at_last(&self, request: &PoolerRequest<'_>) -> Option<u32> {
        let is_cut_before = request.dimensions.or(self.dimensions).is_some();
        let is_dense_vector = request.task == PoolerTask::Embed && self.vocabulary.is_none();
        self.truncate_dim.filter(|_| is_dense_vector && !is_cut_before)
    }
}

impl Gathered {
    /// Pools the rows of logits of a head to one row.
    fn add_weights(&mut self, rows: &[f32], head: &VocabularyHead) {
        self.weights.resize(head.vocab_size, head.pooling.start());
        for row in rows.chunks_exact(head.vocab_size.max(1)) {
            head.pooling.add(&mut self.weights, row);
        }
    }
}

/// Returns whether each token has a result.
fn is_by_token(task: PoolerTask) -> bool {
    matches!(task, PoolerTask::TokenEmbed | PoolerTask::TokenClassify)
}

/// Divides a vector by its length, or by 1e-12 if that is more, as torch's `normalize` does.
pub(super) fn normalize(vector: &mut [f32]) {
    let squares: f64 = vector.iter().map(|x| f64::from(*x) * f64::from(*x)).sum();
    let length = squares.sqrt().max(1e-12);
    vector.iter_mut().for_each(|x| *x = (f64::from(*x) / length) as f32);
}

#[cfg(test)]
#[path = "pooler_tests.rs"]
mod tests;
