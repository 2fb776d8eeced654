//! The outputs of all choices of one HTTP request, as one stream.

use std::sync::Arc;

use futures_util::{
    StreamExt,
    stream::{BoxStream, SelectAll, unfold},
};
use playhouse_actors::{
    logic::{
        outputs::{Logprob, SampledToken},
        request::FinishReason,
    },
    message::input_processor::RawRequest,
    shell::{OutputDelta, Submission},
};

use super::{error::ApiError, usage::Usage};
use crate::engine::Engine;

/// News of one choice.
pub(super) struct ChoiceDelta {
    /// Which choice: prompt `i`, sample `j` is `i * n + j`.
    pub(super) index: usize,
    pub(super) delta: OutputDelta,
}

/// Every choice of every prompt of a request. Dropping it aborts what has not ended.
pub(super) struct Choices {
    prompts: Vec<Arc<[u32]>>,
    per_prompt: usize,
    streams: SelectAll<BoxStream<'static, ChoiceDelta>>,
    ended: Vec<bool>,
    cached_tokens: Vec<Option<usize>>,
    num_output_tokens: usize,
}

/// One choice, complete.
#[derive(Debug)]
pub(super) struct FinishedChoice {
    pub(super) text: String,
    pub(super) tokens: Vec<SampledToken>,
    /// Row `i` belongs to prompt position `i + 1`.
    pub(super) prompt_logprobs: Vec<Vec<Logprob>>,
    pub(super) finish: FinishReason,
}

impl Choices {
    /// Submits one request for each prompt; all of them are accepted, or none.
    pub(super) async fn submit(
        engine: &Engine,
        requests: Vec<RawRequest>,
    ) -> Result<Self, ApiError> {
        let mut submissions = Vec::with_capacity(requests.len());
        for request in requests {
            submissions.push(engine.submit(request).await?);
        }
        Ok(Self::new(submissions))
    }

    fn new(submissions: Vec<Submission>) -> Self {
        let per_prompt = submissions.first().map_or(1, |first| first.choices.len());
        let num_prompts = submissions.len();
        let mut prompts = Vec::with_capacity(num_prompts);
        let mut streams = SelectAll::new();
        for submission in submissions {
            prompts.push(submission.prompt_token_ids);
            for choice in submission.choices {
                let index = streams.len();
                let deltas = unfold(choice, move |mut choice| async move {
                    let delta = choice.next().await?;
                    Some((ChoiceDelta { index, delta }, choice))
                });
                streams.push(deltas.boxed());
            }
        }
        Self {
            ended: vec![false; streams.len()],
            prompts,
            per_prompt,
            streams,
            cached_tokens: vec![None; num_prompts],
            num_output_tokens: 0,
        }
    }

    /// What is new in any choice; `None` once all have ended. A choice that fails ends them all:
    /// the error is the request's.
    pub(super) async fn next(&mut self) -> Option<Result<ChoiceDelta, ApiError>> {
        let Some(news) = self.streams.next().await else {
            let complete = self.ended.iter().all(|&ended| ended);
            self.ended.clear();
            return (!complete).then(|| Err(ApiError::internal("the output broke off")));
        };
        self.num_output_tokens += news.delta.tokens.len();
        let prompt = self.prompt_index(news.index);
        self.cached_tokens[prompt] = self.cached_tokens[prompt].or(news.delta.num_cached_tokens);
        if let Some(finish) = &news.delta.finish {
            self.ended[news.index] = true;
            if let FinishReason::Error(message) = finish {
                return Some(Err(ApiError::internal(message)));
            }
        }
        Some(Ok(news))
    }

    /// Waits for all of them.
    pub(super) async fn finish(&mut self) -> Result<Vec<FinishedChoice>, ApiError> {
        let mut open: Vec<OutputDelta> = Vec::new();
        open.resize_with(self.ended.len(), OutputDelta::default);
        while let Some(news) = self.next().await {
            let ChoiceDelta { index, delta } = news?;
            let choice = &mut open[index];
            choice.text.push_str(&delta.text);
            choice.tokens.extend(delta.tokens);
            choice.prompt_logprobs.extend(delta.prompt_logprobs);
            choice.finish = choice.finish.take().or(delta.finish);
        }
        let finished = open.into_iter().map(|choice| FinishedChoice {
            text: choice.text,
            tokens: choice.tokens,
            prompt_logprobs: choice.prompt_logprobs,
            // `next` ends without an error only after each choice's end.
            finish: choice.finish.unwrap_or(FinishReason::Abort),
        });
        Ok(finished.collect())
    }

    /// How many choices there are.
    pub(super) fn len(&self) -> usize {
        self.prompts.len() * self.per_prompt
    }

    /// Which prompt a choice continues.
    pub(super) fn prompt_index(&self, choice: usize) -> usize {
        choice / self.per_prompt
    }

    /// The tokens of the prompt that a choice continues.
    pub(super) fn prompt_of(&self, choice: usize) -> &[u32] {
        &self.prompts[self.prompt_index(choice)]
    }

    /// Tokens of all prompts, each counted once.
    pub(super) fn num_prompt_tokens(&self) -> usize {
        self.prompts.iter().map(|prompt| prompt.len()).sum()
    }

    /// What the request has cost so far.
    pub(super) fn usage(&self, show_cached: bool) -> Usage {
        let cached = show_cached.then(|| self.cached_tokens.iter().flatten().sum());
        Usage::new(self.num_prompt_tokens(), self.num_output_tokens).with_cached(cached)
    }

    /// Tokens that all choices have so far.
    pub(super) fn num_output_tokens(&self) -> usize {
        self.num_output_tokens
    }
}
