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
    shell::{ChoiceStream, OutputDelta, Submission},
};

use super::{
    caller::{Caller, Deadline},
    error::ApiError,
    usage::Usage,
};
use crate::engine::Engine;

/// The output of one choice as it grows.
pub(super) type Deltas = BoxStream<'static, OutputDelta>;

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
    deadline: Deadline,
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
    /// Submits one request for each prompt; all of them are accepted, or none, and all of them end
    /// by the caller's deadline.
    pub(super) async fn submit(
        engine: &Engine,
        caller: Caller,
        requests: Vec<RawRequest>,
    ) -> Result<Self, ApiError> {
        let deadline = caller.deadline;
        let mut submissions = Vec::with_capacity(requests.len());
        for request in requests {
            submissions.push(deadline.meet(engine.submit(caller.own(request))).await??);
        }
        let outputs = |Submission { prompt_token_ids, choices }| {
            (prompt_token_ids, choices.into_iter().map(deltas).collect())
        };
        let choices = Self::new(submissions.into_iter().map(outputs).collect());
        Ok(Self { deadline, ..choices })
    }

    /// The choices of each prompt; every prompt has as many.
    pub(super) fn new(prompts: Vec<(Arc<[u32]>, Vec<Deltas>)>) -> Self {
        let mut tokens = Vec::with_capacity(prompts.len());
        let mut streams = SelectAll::new();
        for (prompt, choices) in prompts {
            tokens.push(prompt);
            for choice in choices {
                let index = streams.len();
                streams.push(choice.map(move |delta| ChoiceDelta { index, delta }).boxed());
            }
        }
        Self {
            per_prompt: streams.len() / tokens.len().max(1),
            ended: vec![false; streams.len()],
            cached_tokens: vec![None; tokens.len()],
            prompts: tokens,
            streams,
            num_output_tokens: 0,
            deadline: Deadline::default(),
        }
    }

    /// What is new in any choice; `None` once all have ended. A choice that fails, or is late, ends
    /// them all: the error is the request's.
    pub(super) async fn next(&mut self) -> Option<Result<ChoiceDelta, ApiError>> {
        let news = match self.deadline.meet(self.streams.next()).await {
            Ok(news) => news,
            Err(late) => return Some(Err(late)),
        };
        let Some(news) = news else {
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

fn deltas(choice: ChoiceStream) -> Deltas {
    let next = |mut choice: ChoiceStream| async move {
        let delta = choice.next().await?;
        Some((delta, choice))
    };
    unfold(choice, next).boxed()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delta(text: &str, finish: Option<FinishReason>) -> OutputDelta {
        let tokens = vec![SampledToken { token_id: 7, logprobs: None }];
        OutputDelta { text: text.to_owned(), tokens, finish, ..OutputDelta::default() }
    }

    fn choices(outputs: Vec<Vec<OutputDelta>>) -> Choices {
        let streams = outputs.into_iter().map(|deltas| futures_util::stream::iter(deltas).boxed());
        Choices::new(streams.map(|choice| ([1, 2].into(), vec![choice])).collect())
    }

    #[tokio::test]
    async fn deltas_add_up_choice_by_choice() {
        let mut choices = choices(vec![
            vec![delta("a", None), delta("b", Some(FinishReason::Length))],
            vec![delta("c", Some(FinishReason::Stop(None)))],
        ]);
        let finished = choices.finish().await.unwrap();
        let texts: Vec<_> = finished.iter().map(|choice| choice.text.as_str()).collect();
        assert_eq!(texts, ["ab", "c"]);
        assert_eq!((finished[0].tokens.len(), &finished[1].finish), (2, &FinishReason::Stop(None)));
        assert_eq!(choices.usage(false), Usage::new(4, 3));
    }

    #[tokio::test]
    async fn a_failure_or_a_broken_output_is_an_error() {
        let failure = FinishReason::Error("no numbers".to_owned());
        let mut failed = choices(vec![vec![delta("a", Some(failure))]]);
        assert_eq!(failed.finish().await.unwrap_err().message, "no numbers");
        let mut broken = choices(vec![vec![delta("a", None)]]);
        assert_eq!(broken.finish().await.unwrap_err().status, 500);
    }
}
