//! The outputs of all choices of one HTTP request, as one stream.

use std::{sync::Arc, time::Instant};

use futures_util::{
    StreamExt,
    future::{ready, try_join_all},
    stream::{BoxStream, SelectAll, once, unfold},
};
use tokio_util::sync::CancellationToken;

use super::{
    open_requests::{Registration, Work},
    replay::Replay,
    request_metrics::{RequestMetrics, Stopwatch},
    usage::Usage,
};
use crate::api::{
    ChoiceStream, FinishReason, Logprob, OutputDelta, RawRequest, SampledToken, Submission,
};
use crate::engine::{BeamSearchOutput, BeamSearchParams};
use crate::server::{
    http::{
        caller::{Caller, Deadline},
        error::ApiError,
    },
    media::working_bytes,
    memory::{RequestMemory, choices_bytes},
    resume::{AdoptedPrompt, KeptStream, Position, Prompts},
    state::AppState,
    traces::RequestTimes,
};

/// The output of one choice as it grows.
pub(in crate::server) type Deltas = BoxStream<'static, OutputDelta>;

/// New output of one choice.
pub(in crate::server) struct ChoiceDelta {
    /// Index of the choice: sample `j` of prompt `i` has `i * n + j`.
    pub(in crate::server) index: usize,
    pub(in crate::server) delta: OutputDelta,
}

/// Every choice of every prompt of a request. A drop aborts the choices that have not ended.
pub(in crate::server) struct Choices {
    prompts: Vec<Arc<[u32]>>,
    /// The tokens that the client sent with each prompt. Those of an encoder are not in the prompt.
    num_input_tokens: Vec<usize>,
    /// The index of each choice's prompt.
    prompt_indices: Vec<usize>,
    streams: SelectAll<BoxStream<'static, ChoiceDelta>>,
    ended: Vec<bool>,
    cached_tokens: Vec<Option<usize>>,
    num_output_tokens: usize,
    /// Output that came before the first call of `next`.
    first: Option<ChoiceDelta>,
    stopwatch: Stopwatch,
    deadline: Deadline,
    /// Outputs of an earlier process, up to the last event that the client has. They come first.
    replay: Option<Replay>,
    /// The place where the answer is kept, if it is.
    kept: Option<KeptStream>,
    /// The request's lease of the memory for requests.
    memory: Option<RequestMemory>,
    _registration: Option<Registration>,
}

/// One choice, complete.
#[derive(Debug)]
pub(in crate::server) struct FinishedChoice {
    pub(in crate::server) text: String,
    pub(in crate::server) tokens: Vec<SampledToken>,
    /// Row `i` belongs to prompt position `i + 1`.
    pub(in crate::server) prompt_logprobs: Vec<Vec<Logprob>>,
    pub(in crate::server) finish: FinishReason,
}

impl Choices {
    /// Submits one request for each prompt. Either all of them are accepted, or none. All of them
    /// end by the caller's deadline. From then on, the `names` of their answer abort them. Their
    /// memory is leased on `memory`.
    ///
    /// If an output is constrained, this completes only once the output has begun. Only compiling a
    /// grammar shows whether it is valid, and the status of a streamed answer waits for that.
    pub(in crate::server) async fn submit(
        state: &AppState,
        names: &[&str],
        caller: Caller,
        memory: RequestMemory,
        requests: Vec<RawRequest>,
    ) -> Result<Self, ApiError> {
        let started = Instant::now();
        let deadline = caller.deadline;
        deadline.meet(grow(&memory, &requests)).await??;
        deadline.meet(memory.grow_for_media(media_bytes(state, &requests))).await??;
        let is_constrained =
            requests.iter().any(|request| request.params.structured_output.is_some());
        let mut submissions: Vec<Submission> = Vec::with_capacity(requests.len());
        let mut group = None;
        for request in requests {
            let request = caller.own(RawRequest { group, ..request });
            let submission = deadline.meet(state.engine.submit(request)).await??;
            group = group.or(submission.choices.first().map(ChoiceStream::request));
            submissions.push(submission);
        }
        let ids = submissions.iter().flat_map(|submission| &submission.choices);
        let work = Work::Requests(ids.map(ChoiceStream::request).collect());
        let registration = Some(state.open.enter(names, caller.tenant, work));
        let num_input_tokens = submissions.iter().map(Submission::num_input_tokens).collect();
        let processed_bytes = submissions.iter().map(|submission| submission.media_bytes).sum();
        let outputs = |Submission { prompt_token_ids, choices, .. }| {
            (prompt_token_ids, choices.into_iter().map(deltas).collect())
        };
        let choices = Self::since(started, submissions.into_iter().map(outputs).collect());
        let choices = Self { num_input_tokens, ..choices };
        memory.submitted(choices.num_prompt_tokens(), processed_bytes);
        let memory = Some(memory);
        let mut choices = Self { deadline, memory, _registration: registration, ..choices };
        if is_constrained {
            choices.begun().await?;
        }
        Ok(choices)
    }

    /// Takes over the requests of an answer that an earlier process accepted. Their outputs up to
    /// the event `after`, the last that the client has, come in pieces that end there.
    pub(in crate::server) fn adopt(
        state: &AppState,
        names: &[&str],
        caller: Caller,
        memory: RequestMemory,
        prompts: Prompts,
        after: Option<&Position>,
    ) -> Result<Self, ApiError> {
        let ids = prompts.iter().flat_map(|prompt| &prompt.choices);
        let work = Work::Requests(ids.map(ChoiceStream::request).collect());
        let registration = Some(state.open.enter(names, caller.tenant, work));
        let mut tokens = Vec::with_capacity(prompts.len());
        let num_input_tokens = prompts.iter().map(|prompt| prompt.num_input_tokens).collect();
        let (mut prompt_indices, mut streams) = (Vec::new(), Vec::new());
        for (index, AdoptedPrompt { token_ids, choices, .. }) in prompts.into_iter().enumerate() {
            tokens.push(token_ids);
            prompt_indices.extend(choices.iter().map(|_| index));
            streams.extend(choices);
        }
        let num_choices = streams.len();
        let replay = Some(Replay::new(streams, after)?);
        Ok(Self {
            prompt_indices,
            ended: vec![false; num_choices],
            cached_tokens: vec![None; tokens.len()],
            prompts: tokens,
            num_input_tokens,
            stopwatch: Stopwatch::new(Instant::now(), num_choices),
            replay,
            deadline: caller.deadline,
            memory: Some(memory),
            _registration: registration,
            ..Self::since(Instant::now(), Vec::new())
        })
    }

    /// Completes with the first output of any choice, which [`Choices::next`] still returns, or
    /// with the failure that comes instead. That a choice was accepted does not count as output.
    async fn begun(&mut self) -> Result<(), ApiError> {
        while let Some(news) = self.next().await.transpose()? {
            let delta = &news.delta;
            let is_empty = delta.tokens.is_empty()
                && delta.text.is_empty()
                && delta.prompt_logprobs.is_empty()
                && delta.finish.is_none();
            if !is_empty {
                self.first = Some(news);
                break;
            }
        }
        Ok(())
    }

    /// Searches for the `n` best choices of each prompt. They arrive when the search is over. The
    /// requests set log-probabilities and the limit on tokens. Meanwhile the `names` of their
    /// answer abort them. Their memory is leased on `memory`.
    pub(in crate::server) async fn beam_search(
        state: &AppState,
        names: &[&str],
        caller: Caller,
        memory: RequestMemory,
        requests: Vec<RawRequest>,
        length_penalty: f32,
    ) -> Result<Self, ApiError> {
        let started = Instant::now();
        if requests.iter().any(|request| request.params.structured_output.is_some()) {
            let message = "structured outputs and tool calls that are forced or strict are not \
                           supported with beam search";
            return Err(ApiError::invalid("use_beam_search", message));
        }
        let deadline = caller.deadline;
        deadline.meet(grow(&memory, &requests)).await??;
        deadline.meet(memory.grow_for_media(media_bytes(state, &requests))).await??;
        let aborted = CancellationToken::new();
        let searches = Work::Whole(aborted.clone());
        let registration = state.open.enter(names, caller.tenant, searches);
        let searches = requests.into_iter().map(|request| {
            let params = BeamSearchParams {
                max_tokens: request.max_tokens,
                ignore_eos: request.params.ignore_eos,
                length_penalty,
                include_stop_str_in_output: request.params.include_stop_str_in_output,
                skip_special_tokens: request.params.skip_special_tokens,
                allowed_token_ids: request.params.allowed_token_ids.clone(),
                logprobs: request.params.logprobs,
                prompt_logprobs: request.params.prompt_logprobs,
                ..BeamSearchParams::new(request.params.n)
            };
            state.engine.beam_search_until(caller.own(request), params, &aborted)
        });
        let found = deadline.meet(try_join_all(searches)).await??;
        let num_input_tokens = found.iter().map(|found| found.num_input_tokens).collect();
        let choices = Self::since(started, found.into_iter().map(beams).collect());
        let choices = Self { num_input_tokens, ..choices };
        Ok(Self { deadline, memory: Some(memory), _registration: Some(registration), ..choices })
    }

    /// Returns the choices of each prompt.
    #[cfg(test)]
    pub(in crate::server) fn new(prompts: Vec<(Arc<[u32]>, Vec<Deltas>)>) -> Self {
        Self::since(Instant::now(), prompts)
    }

    /// Returns the same for a request that arrived at `started`.
    fn since(started: Instant, prompts: Vec<(Arc<[u32]>, Vec<Deltas>)>) -> Self {
        let mut tokens = Vec::with_capacity(prompts.len());
        let mut prompt_indices = Vec::new();
        let mut streams = SelectAll::new();
        for (prompt_index, (prompt, choices)) in prompts.into_iter().enumerate() {
            tokens.push(prompt);
            for choice in choices {
                let index = streams.len();
                prompt_indices.push(prompt_index);
                streams.push(numbered(index, choice));
            }
        }
        Self {
            prompt_indices,
            ended: vec![false; streams.len()],
            cached_tokens: vec![None; tokens.len()],
            num_input_tokens: tokens.iter().map(|prompt| prompt.len()).collect(),
            prompts: tokens,
            stopwatch: Stopwatch::new(started, streams.len()),
            streams,
            num_output_tokens: 0,
            first: None,
            replay: None,
            kept: None,
            deadline: Deadline::default(),
            memory: None,
            _registration: None,
        }
    }

    /// Returns new output of any choice, and `None` once all have ended. A choice that fails or is
    /// late ends them all: the error is the request's.
    pub(in crate::server) async fn next(&mut self) -> Option<Result<ChoiceDelta, ApiError>> {
        if let Some(first) = self.first.take() {
            return Some(Ok(first));
        }
        let news = match self.deadline.meet(self.upcoming()).await {
            Ok(Ok(news)) => news,
            Ok(Err(error)) | Err(error) => return Some(Err(error)),
        };
        let Some(news) = news else {
            let complete = self.ended.iter().all(|&ended| ended);
            self.ended.clear();
            return (!complete).then(|| Err(ApiError::internal("the output broke off")));
        };
        self.num_output_tokens += news.delta.tokens.len();
        self.stopwatch.note(news.index, &news.delta, Instant::now());
        let prompt = self.prompt_index(news.index);
        self.cached_tokens[prompt] = self.cached_tokens[prompt].or(news.delta.num_cached_tokens);
        if let Some(finish) = &news.delta.finish {
            self.ended[news.index] = true;
            if let FinishReason::Error(failure) = finish {
                return Some(Err(failure.into()));
            }
        }
        Some(Ok(news))
    }

    /// Returns the next output: those of the replay first.
    async fn upcoming(&mut self) -> Result<Option<ChoiceDelta>, ApiError> {
        if let Some(replay) = &mut self.replay {
            if let Some(news) = replay.next().await? {
                return Ok(Some(news));
            }
            let choices = self.replay.take().map_or_else(Vec::new, Replay::into_choices);
            for (index, choice) in choices.into_iter().enumerate() {
                self.streams.push(numbered(index, deltas(choice)));
            }
        }
        Ok(self.streams.next().await)
    }

    /// Keeps the answer at this place.
    pub(in crate::server) fn keep(&mut self, kept: Option<KeptStream>) {
        self.kept = kept;
    }

    /// Returns the place where the answer is kept, for its stream.
    pub(in crate::server) fn take_kept(&mut self) -> Option<KeptStream> {
        self.kept.take()
    }

    /// Waits for the end of all choices. Returns their outputs.
    pub(in crate::server) async fn finish(&mut self) -> Result<Vec<FinishedChoice>, ApiError> {
        let mut open: Vec<OutputDelta> = Vec::new();
        open.resize_with(self.ended.len(), OutputDelta::default);
        while let Some(news) = self.next().await {
            let ChoiceDelta { index, delta } = news?;
            self.memory.as_ref().map_or(Ok(()), |memory| memory.add_answer(&delta))?;
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

    /// Returns the number of choices.
    pub(in crate::server) fn len(&self) -> usize {
        self.prompt_indices.len()
    }

    /// Returns the index of the prompt that a choice continues.
    pub(in crate::server) fn prompt_index(&self, choice: usize) -> usize {
        self.prompt_indices[choice]
    }

    /// Returns the tokens of the prompt that a choice continues.
    pub(in crate::server) fn prompt_of(&self, choice: usize) -> &[u32] {
        &self.prompts[self.prompt_index(choice)]
    }

    /// Returns the number of tokens that the client sent with the prompt of a choice.
    pub(in crate::server) fn num_input_tokens_of(&self, choice: usize) -> usize {
        self.num_input_tokens[self.prompt_index(choice)]
    }

    /// Returns the tokens of all prompts, each counted once. Those of an encoder count, too.
    pub(in crate::server) fn num_prompt_tokens(&self) -> usize {
        self.num_input_tokens.iter().sum()
    }

    /// Returns the request's usage so far.
    pub(in crate::server) fn usage(&self, show_cached: bool) -> Usage {
        let cached = show_cached.then(|| self.num_cached_tokens());
        Usage::new(self.num_prompt_tokens(), self.num_output_tokens).with_cached(cached)
    }

    /// Returns the request's times so far, for its span.
    pub(in crate::server) fn times(&self) -> RequestTimes {
        self.stopwatch.times()
    }

    /// Returns the request's times so far.
    pub(in crate::server) fn metrics(&self) -> RequestMetrics {
        self.stopwatch.metrics()
    }

    /// Returns the known number of prompt tokens that came from the prefix cache.
    pub(in crate::server) fn num_cached_tokens(&self) -> usize {
        self.cached_tokens.iter().flatten().sum()
    }

    /// Returns the number of output tokens of all choices so far.
    pub(in crate::server) fn num_output_tokens(&self) -> usize {
        self.num_output_tokens
    }
}

/// Leases the memory of the choices of `requests`.
async fn grow(memory: &RequestMemory, requests: &[RawRequest]) -> Result<(), ApiError> {
    let bytes = requests.iter().map(choices_bytes).fold(0, usize::saturating_add);
    memory.grow(bytes).await
}

/// Returns the memory in which the images and sounds of `requests` are decoded.
fn media_bytes(state: &AppState, requests: &[RawRequest]) -> usize {
    let media = requests.iter().map(|request| working_bytes(state, &request.media));
    media.fold(0, usize::saturating_add)
}

/// Returns a search's outcome as streams, each of which holds its beam in one piece.
fn beams(found: BeamSearchOutput) -> (Arc<[u32]>, Vec<Deltas>) {
    let BeamSearchOutput { prompt_token_ids, prompt_logprobs, beams, .. } = found;
    let (num_cached_tokens, queue_time) = (found.num_cached_tokens, found.queue_time);
    let whole = beams.into_iter().map(|beam| {
        let delta = OutputDelta {
            text: beam.text,
            tokens: beam.tokens,
            pooled: None,
            prompt_logprobs: prompt_logprobs.clone(),
            num_cached_tokens,
            queue_time,
            finish: Some(beam.finish),
        };
        once(ready(delta)).boxed()
    });
    let whole = whole.collect();
    (prompt_token_ids, whole)
}

fn numbered(index: usize, deltas: Deltas) -> BoxStream<'static, ChoiceDelta> {
    deltas.map(move |delta| ChoiceDelta { index, delta }).boxed()
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
    use crate::api::Failure;

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
    async fn output_before_the_first_read_is_not_lost() {
        let mut choices =
            choices(vec![vec![delta("a", None), delta("b", Some(FinishReason::Length))]]);
        choices.begun().await.unwrap();
        assert_eq!(choices.finish().await.unwrap()[0].text, "ab");
        assert_eq!(choices.usage(false), Usage::new(2, 2));
    }

    #[tokio::test]
    async fn a_bad_grammar_is_the_clients_fault() {
        let failure = Failure::InvalidGrammar("no such schema".to_owned());
        let end = OutputDelta { finish: Some(FinishReason::Error(failure)), ..Default::default() };
        let accepted = OutputDelta::default();
        let error = choices(vec![vec![accepted, end]]).begun().await.unwrap_err();
        assert_eq!((error.status.as_u16(), error.kind), (400, "BadRequestError"));
        assert_eq!(error.message, "no such schema");
    }

    #[tokio::test]
    async fn a_failure_or_a_broken_output_is_an_error() {
        let failure = FinishReason::Error(Failure::NumericalGarbage);
        let mut failed = choices(vec![vec![delta("a", Some(failure))]]);
        assert_eq!(failed.finish().await.unwrap_err().message, "numerical_garbage");
        let mut broken = choices(vec![vec![delta("a", None)]]);
        assert_eq!(broken.finish().await.unwrap_err().status, 500);
    }
}
