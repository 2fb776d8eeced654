//! The parameters of pooling: a request for numbers about its prompt instead of tokens.

use serde::{Deserialize, Serialize};

use crate::error::RequestError;

/// The numbers that a pooling request asks for.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum PoolingTask {
    /// One vector for the prompt.
    #[default]
    Embed,
    /// A vector for each token of the prompt.
    TokenEmbed,
    /// A number for each class, for the prompt.
    Classify,
    /// A number for each class, for each token of the prompt.
    TokenClassify,
}

impl PoolingTask {
    /// All tasks.
    pub const ALL: [Self; 4] = [Self::Embed, Self::TokenEmbed, Self::Classify, Self::TokenClassify];

    /// Returns vLLM's name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Embed => "embed",
            Self::TokenEmbed => "token_embed",
            Self::Classify => "classify",
            Self::TokenClassify => "token_classify",
        }
    }

    /// Returns whether each token of the prompt has a row of the result.
    #[must_use]
    pub fn is_by_token(self) -> bool {
        matches!(self, Self::TokenEmbed | Self::TokenClassify)
    }
}

/// The parameters of a pooling request.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PoolingParams {
    /// The numbers to compute.
    pub task: PoolingTask,
    /// Whether vectors are normalized, and logits become probabilities. `None` is the model's
    /// default.
    pub use_activation: Option<bool>,
    /// Number of elements that a vector keeps, of a model that was trained for it.
    pub dimensions: Option<u32>,
    /// Position of the first token of type 1, in a pair of texts whose tokenizer tells them apart.
    pub second_text_at: Option<u32>,
    /// Whether a prompt longer than the model's context may be computed in pieces. The result is
    /// then joined from theirs. [`PoolingParams::fit`] clears it for heads without this.
    pub in_pieces: bool,
    /// Late chunking: the positions after the last token of each chunk of the prompt, in order. The
    /// result then has a row for each chunk, the mean of its tokens. Empty: one row for the prompt.
    pub chunk_ends: Vec<u32>,
    /// Number of first tokens that the pooling of a vector leaves out: those of a text that the
    /// model expects before others. Such a prompt is not computed in pieces.
    pub num_left_out: u32,
    /// Whether the result needs the hidden states of all tokens of the prompt. The request then
    /// uses no block that another one computed. [`PoolingParams::fit`] sets it.
    pub needs_all_tokens: bool,
}

/// The heads of a model, as far as requests are checked by them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelHeads {
    /// Whether the model has a head that predicts the next token.
    pub generates: bool,
    /// Token ids at the end of the vocabulary that no output has. The head has no row for them.
    pub num_unscored: u32,
    /// The tasks of the pooler, one entry for each.
    pub pooling: Vec<PoolingHead>,
}

/// A generating model without a pooler.
impl Default for ModelHeads {
    fn default() -> Self {
        Self { generates: true, num_unscored: 0, pooling: Vec::new() }
    }
}

/// One task of a model's pooler.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolingHead {
    /// The task.
    pub task: PoolingTask,
    /// Whether the hidden state of the last token alone decides the result.
    pub is_last_token: bool,
    /// Number of elements in a row of the result.
    pub width: usize,
    /// The sizes to which a vector may be cut.
    pub dimensions: Dimensions,
    /// Whether `use_activation` is on by default.
    pub activation: bool,
    /// Longest prompt in tokens, if longer ones than the model's context are computed in pieces.
    pub max_prompt_len: Option<usize>,
    /// Whether chunks of a prompt may have a vector each, because vectors are means of tokens.
    pub takes_chunks: bool,
}

/// The sizes to which a model's vectors may be cut.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Dimensions {
    /// None: the model was not trained for it.
    #[default]
    Fixed,
    /// Any number of elements from 1 on.
    Any,
    /// These numbers of elements alone.
    Listed(Vec<u32>),
}

impl ModelHeads {
    /// Returns the head for a task, if the model has one.
    #[must_use]
    pub fn pooling(&self, task: PoolingTask) -> Option<&PoolingHead> {
        self.pooling.iter().find(|head| head.task == task)
    }

    /// Checks that the model generates.
    ///
    /// # Errors
    /// [`RequestError::Unsupported`] if it only pools.
    pub fn check_generates(&self) -> Result<(), RequestError> {
        match self.generates {
            true => Ok(()),
            false => Err(self.unsupported("generate")),
        }
    }

    /// Returns the names of all work that the model can do.
    #[must_use]
    pub fn supported(&self) -> Vec<&'static str> {
        let generates = self.generates.then_some("generate");
        generates.into_iter().chain(self.pooling.iter().map(|head| head.task.as_str())).collect()
    }

    fn unsupported(&self, task: &'static str) -> RequestError {
        RequestError::Unsupported { task, supported: self.supported() }
    }
}

impl PoolingParams {
    /// Returns the parameters of a task, with the model's defaults.
    #[must_use]
    pub fn new(task: PoolingTask) -> Self {
        Self { task, ..Self::default() }
    }

    /// Returns the parameters with the facts that the scheduler needs, if the model has a head for
    /// them.
    ///
    /// # Errors
    /// [`RequestError::Unsupported`] if it has none, and [`RequestError::InvalidParameter`] for
    /// dimensions that the model does not have.
    pub fn fit(&self, heads: &ModelHeads) -> Result<Self, RequestError> {
        let head = heads.pooling(self.task);
        let head = head.ok_or_else(|| heads.unsupported(self.task.as_str()))?;
        if let Some(dimensions) = self.dimensions {
            head.check_dimensions(dimensions)?;
        }
        let use_activation = Some(self.use_activation.unwrap_or(head.activation));
        let in_pieces = self.in_pieces && head.max_prompt_len.is_some() && self.num_left_out == 0;
        let needs_all_tokens = !head.is_last_token;
        Ok(Self { use_activation, in_pieces, needs_all_tokens, ..self.clone() })
    }

    /// Returns the parameters with these chunks, for a prompt of `num_tokens`: see
    /// [`PoolingParams::chunk_ends`].
    ///
    /// # Errors
    /// [`RequestError::InvalidParameter`] if the model does not pool a vector by the mean. Also if
    /// a chunk has no token, or the chunks are not the whole prompt.
    pub fn in_chunks(
        self,
        ends: Vec<u32>,
        heads: &ModelHeads,
        num_tokens: usize,
    ) -> Result<Self, RequestError> {
        let head = heads.pooling(self.task).filter(|head| head.takes_chunks);
        if head.is_none() {
            let accepted = "unset, because the model does not pool vectors by the mean of tokens";
            return Err(RequestError::invalid("late_chunking", true, accepted));
        }
        let starts = std::iter::once(0).chain(ends.iter().copied());
        if let Some(index) = ends.iter().zip(starts).position(|(end, start)| *end <= start) {
            let accepted = "a text with at least one token";
            let field = format!("input[{index}]");
            return Err(RequestError::invalid(field, "no token of its own", accepted));
        }
        if ends.last().is_none_or(|end| *end as usize != num_tokens) {
            let accepted = format!("increasing, and {num_tokens} at the end");
            return Err(RequestError::invalid("chunk_ends", format!("{ends:?}"), accepted));
        }
        Ok(Self { chunk_ends: ends, in_pieces: false, needs_all_tokens: true, ..self })
    }

    /// Returns the number of tokens that a prompt may have, where the model's context has
    /// `max_model_len`.
    #[must_use]
    pub fn max_prompt_len(&self, heads: &ModelHeads, max_model_len: usize) -> usize {
        let longest = heads.pooling(self.task).and_then(|head| head.max_prompt_len);
        longest.filter(|_| self.in_pieces).unwrap_or(max_model_len)
    }

    /// Returns the most bytes that the result for a prompt of `num_tokens` takes.
    #[must_use]
    pub fn result_bytes(&self, heads: &ModelHeads, num_tokens: usize) -> usize {
        let width = heads.pooling(self.task).map_or(0, |head| head.width);
        let width = self.dimensions.map_or(width, |count| width.min(count as usize));
        let rows = if self.task.is_by_token() { num_tokens } else { self.chunk_ends.len().max(1) };
        rows.saturating_mul(width).saturating_mul(size_of::<f32>())
    }
}

impl PoolingHead {
    fn check_dimensions(&self, dimensions: u32) -> Result<(), RequestError> {
        let (most, invalid) = (self.width, |accepted: String| {
            Err(RequestError::invalid("dimensions", dimensions, accepted))
        });
        let is_within = dimensions >= 1 && dimensions as usize <= most;
        match &self.dimensions {
            Dimensions::Fixed => {
                invalid("unset, because the model's vectors cannot be cut".to_owned())
            }
            Dimensions::Any if !is_within => invalid(format!("in 1..={most}")),
            Dimensions::Listed(listed) if !is_within || !listed.contains(&dimensions) => {
                invalid(format!("one of {listed:?}"))
            }
            Dimensions::Any | Dimensions::Listed(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heads(dimensions: Dimensions) -> ModelHeads {
        let head = PoolingHead {
            task: PoolingTask::Embed,
            is_last_token: false,
            width: 8,
            dimensions,
            activation: true,
            max_prompt_len: None,
            takes_chunks: true,
        };
        ModelHeads { generates: false, num_unscored: 0, pooling: vec![head] }
    }

    fn fit(dimensions: Dimensions, wanted: u32) -> Result<PoolingParams, String> {
        let params =
            PoolingParams { dimensions: Some(wanted), ..PoolingParams::new(PoolingTask::Embed) };
        params.fit(&heads(dimensions)).map_err(|error| error.to_string())
    }

    #[test]
    fn a_task_without_a_head_is_refused_with_those_that_have_one() {
        let refused = PoolingParams::new(PoolingTask::Classify).fit(&heads(Dimensions::Fixed));
        let expected = "the model does not support `classify`; it supports embed";
        assert_eq!(refused.unwrap_err().to_string(), expected);
        assert!(heads(Dimensions::Fixed).check_generates().is_err());
        assert!(ModelHeads::default().check_generates().is_ok());
    }

    #[test]
    fn the_model_decides_on_defaults_and_on_prefix_hits() {
        let params = PoolingParams::new(PoolingTask::Embed).fit(&heads(Dimensions::Fixed));
        let params = params.unwrap();
        assert_eq!((params.use_activation, params.needs_all_tokens), (Some(true), true));
    }

    #[test]
    fn only_a_head_for_it_takes_longer_prompts() {
        let params = PoolingParams { in_pieces: true, ..PoolingParams::new(PoolingTask::Embed) };
        let mut heads = heads(Dimensions::Fixed);
        let longest = |heads: &ModelHeads| params.fit(heads).unwrap().max_prompt_len(heads, 10);
        assert_eq!(longest(&heads), 10);
        heads.pooling[0].max_prompt_len = Some(50);
        assert_eq!(longest(&heads), 50);
        assert_eq!(PoolingParams::new(PoolingTask::Embed).max_prompt_len(&heads, 10), 10);
        let without = PoolingParams { num_left_out: 2, ..params.clone() };
        assert_eq!(without.fit(&heads).unwrap().max_prompt_len(&heads, 10), 10);
    }

    #[test]
    fn chunks_are_the_whole_prompt_and_have_tokens() {
        let mut heads = heads(Dimensions::Fixed);
        let params = || PoolingParams::new(PoolingTask::Embed).fit(&heads).unwrap();
        let chunked = |ends: &[u32]| {
            let chunked = params().in_chunks(ends.to_vec(), &heads, 10);
            chunked.map(|params| params.chunk_ends).map_err(|error| error.to_string())
        };
        assert_eq!(chunked(&[3, 10]), Ok(vec![3, 10]));
        assert!(chunked(&[0, 10]).is_err_and(|error| error.contains("input[0]")));
        assert!(chunked(&[3, 3, 10]).is_err_and(|error| error.contains("input[1]")));
        for wrong in [&[3][..], &[3, 11], &[]] {
            assert!(chunked(wrong).is_err_and(|error| error.contains("10 at the end")));
        }
        assert_eq!(
            params().in_chunks(vec![3, 10], &heads, 10).unwrap().result_bytes(&heads, 10),
            64
        );
        heads.pooling[0].takes_chunks = false;
        let refused = PoolingParams::new(PoolingTask::Embed).in_chunks(vec![10], &heads, 10);
        assert!(refused.unwrap_err().to_string().starts_with("late_chunking must be unset"));
    }

    #[test]
    fn a_result_for_each_token_grows_with_the_prompt() {
        let mut heads = heads(Dimensions::Any);
        let bytes = |heads: &ModelHeads, task, dimensions| {
            PoolingParams { dimensions, ..PoolingParams::new(task) }.result_bytes(heads, 100)
        };
        assert_eq!(bytes(&heads, PoolingTask::Embed, None), 8 * 4);
        heads.pooling[0].task = PoolingTask::TokenEmbed;
        assert_eq!(bytes(&heads, PoolingTask::TokenEmbed, None), 100 * 8 * 4);
        assert_eq!(bytes(&heads, PoolingTask::TokenEmbed, Some(2)), 100 * 2 * 4);
    }

    #[test]
    fn only_sizes_that_the_model_was_trained_for_are_taken() {
        assert!(fit(Dimensions::Fixed, 4).is_err());
        assert!(fit(Dimensions::Any, 8).is_ok());
        assert!(fit(Dimensions::Any, 9).is_err() && fit(Dimensions::Any, 0).is_err());
        assert!(fit(Dimensions::Listed(vec![2, 4]), 4).is_ok());
        let refused = fit(Dimensions::Listed(vec![2, 4]), 3);
        assert_eq!(refused, Err("dimensions must be one of [2, 4], got 3".to_owned()));
    }
}
