//! Beam search, as a loop in front of the engine. Each step submits a request of one token for each
//! beam, and continues the likeliest beams. The prefix cache makes these requests cheap.

mod search;

use std::sync::Arc;

use futures_util::future::try_join_all;
use playhouse_actors::{
    error::RequestError,
    logic::{
        input::fit::OutputTokens,
        request::{
            FinishReason,
            ids::{Micros, TokenId},
            media::MultimodalFeature,
            outputs::{Logprob, SampledToken, TokenLogprobs},
            sampling_params::{MAX_LOGPROB_TOKEN_IDS, SamplingParams},
        },
    },
    message::input_processor::{Prompt, RawRequest},
    ports::ExpandedPrompt,
    system::{ChoiceStream, Submission},
};
use tokio_util::sync::CancellationToken;

use self::search::{BeamSearch, Hypothesis, SearchParams};
use super::Engine;

/// The parameters of a beam search. It uses the model's own log-probabilities, without temperature,
/// penalties and filters.
#[derive(Debug, Clone, PartialEq)]
pub struct BeamSearchParams {
    /// The most beams that live at a time, and that are returned: from 1 to half of the engine's
    /// `max_logprobs`.
    pub beam_width: u32,
    /// The most tokens of an output, the whole context at most. The room that the context leaves
    /// beside the prompt is a limit too.
    pub max_tokens: Option<u32>,
    /// Whether a beam continues after the end-of-sequence token.
    pub ignore_eos: bool,
    /// The exponent of a beam's length in generated tokens. A beam's score is the sum of its
    /// log-probabilities divided by that power. An exponent above 0 prefers longer beams.
    pub length_penalty: f32,
    /// Whether the end-of-sequence token stays among the tokens.
    pub include_stop_str_in_output: bool,
    /// Whether special tokens are left out of the text.
    pub skip_special_tokens: bool,
    /// The only tokens that outputs may have, 128 at most. `None` allows all.
    pub allowed_token_ids: Option<Vec<TokenId>>,
    /// Likely tokens to report with each token. `None` reports no log-probabilities.
    pub logprobs: Option<u32>,
    /// Likely tokens to report with each token of the prompt.
    pub prompt_logprobs: Option<u32>,
}

impl BeamSearchParams {
    /// Returns vLLM's defaults.
    #[must_use]
    pub fn new(beam_width: u32) -> Self {
        Self {
            beam_width,
            max_tokens: Some(16),
            ignore_eos: false,
            length_penalty: 1.0,
            include_stop_str_in_output: false,
            skip_special_tokens: true,
            allowed_token_ids: None,
            logprobs: None,
            prompt_logprobs: None,
        }
    }

    fn validate(&self, max_logprobs: usize) -> Result<(), RequestError> {
        let most = max_logprobs / 2;
        if !(1..=most).contains(&(self.beam_width as usize)) {
            let accepted = format!("in 1..={most} with beam search (half of max_logprobs)");
            return Err(RequestError::invalid("n", self.beam_width, accepted));
        }
        if !self.length_penalty.is_finite() {
            return Err(RequestError::invalid("length_penalty", self.length_penalty, "finite"));
        }
        if self.max_tokens == Some(0) {
            return Err(RequestError::invalid("max_tokens", 0, "at least 1"));
        }
        let allowed = self.allowed_token_ids.as_ref().map_or(0, Vec::len);
        if allowed > MAX_LOGPROB_TOKEN_IDS {
            let accepted = format!("at most {MAX_LOGPROB_TOKEN_IDS} token ids with beam search");
            return Err(RequestError::invalid("allowed_token_ids", allowed, accepted));
        }
        Ok(())
    }
}

/// The result of a search.
#[derive(Debug, Clone, PartialEq)]
pub struct BeamSearchOutput {
    /// The prompt as the model sees it.
    pub prompt_token_ids: Arc<[TokenId]>,
    /// Tokens that the client sent: those of the prompt, and those of a text that an encoder takes.
    pub num_input_tokens: usize,
    /// Row `i` belongs to prompt position `i + 1`. Empty unless the request asks for it.
    pub prompt_logprobs: Vec<TokenLogprobs>,
    /// Prompt tokens that the first step found in the prefix cache.
    pub num_cached_tokens: Option<usize>,
    /// Microseconds until that step was scheduled.
    pub queue_time: Option<Micros>,
    /// The beams, best first. A single beam without text if the engine ended the search.
    pub beams: Vec<Beam>,
}

/// One continuation of the prompt.
#[derive(Debug, Clone, PartialEq)]
pub struct Beam {
    /// The text, without the token that ended the beam.
    pub text: String,
    /// Its tokens.
    pub tokens: Vec<SampledToken>,
    /// Natural logarithm of its probability.
    pub cum_logprob: f64,
    /// The score, by which beams are sorted.
    pub score: f64,
    /// `Stop` with the end-of-sequence token, or `Length`; `Abort` or `Error` when the engine ended
    /// the search.
    pub finish: FinishReason,
}

impl Engine {
    /// Searches for the likeliest continuations of the prompt of `request`. Its sampling parameters
    /// and its `max_tokens` are not used. Dropping the future aborts the search.
    ///
    /// # Errors
    /// [`RequestError`] if the request is invalid, or the engine is full or draining. Neither a
    /// drain nor a full engine ends a search that has begun.
    pub async fn beam_search(
        &self,
        request: RawRequest,
        params: BeamSearchParams,
    ) -> Result<BeamSearchOutput, RequestError> {
        self.beam_search_until(request, params, &CancellationToken::new()).await
    }

    /// Searches until `aborted` is cancelled. The search then takes no further step and returns a
    /// single beam with finish reason `abort`.
    ///
    /// # Errors
    /// As [`Engine::beam_search`].
    pub async fn beam_search_until(
        &self,
        request: RawRequest,
        params: BeamSearchParams,
        aborted: &CancellationToken,
    ) -> Result<BeamSearchOutput, RequestError> {
        let vocab_size = self.model_info().vocab_size as usize;
        params.validate(self.config().max_logprobs.min(vocab_size))?;
        let wanted = self.limited(params.max_tokens);
        let output = OutputTokens { wanted, default: request.max_tokens_default };
        let request = step_request(request, &params);
        let submission = self.submit(request.clone()).await?;
        // All steps of a search count as one request when requests take turns.
        let first = submission.choices.first().map(ChoiceStream::request);
        let request = RawRequest { group: request.group.or(first), ..request };
        let prompt_token_ids = Arc::clone(&submission.prompt_token_ids);
        let mm_features = Arc::clone(&submission.mm_features);
        let num_input_tokens = submission.num_input_tokens();
        let max_tokens = self.room(prompt_token_ids.len(), output)?;
        let mut search = BeamSearch::new(SearchParams {
            beam_width: params.beam_width as usize,
            max_tokens,
            length_penalty: f64::from(params.length_penalty),
            eos_token_ids: match params.ignore_eos {
                true => Vec::new(),
                false => self.model_info().eos_token_ids.clone(),
            },
            include_stop_token: params.include_stop_str_in_output,
            takes_whole_rows: params.allowed_token_ids.is_some(),
            num_logprobs: params.logprobs.map(|count| count as usize),
        });
        let allowed = params.allowed_token_ids.as_deref();
        let first = aborted.run_until_cancelled(next_tokens(submission, allowed)).await;
        let first = first.unwrap_or_else(NextTokens::aborted);
        let mut step = vec![(first.likeliest, first.finish)];
        let output = |beams| BeamSearchOutput {
            prompt_token_ids: Arc::clone(&prompt_token_ids),
            num_input_tokens,
            prompt_logprobs: first.prompt_logprobs,
            num_cached_tokens: first.num_cached_tokens,
            queue_time: first.queue_time,
            beams,
        };
        loop {
            if let Some(ended) = step.iter().find_map(|(_, finish)| unwanted(finish)) {
                return Ok(output(vec![ended]));
            }
            let rows: Vec<_> = step.into_iter().map(|(row, _)| row).collect();
            search.extend(&rows);
            if search.is_done() {
                break;
            }
            let live = search.live().iter();
            let next = try_join_all(live.map(async |beam| {
                let tokens = [&prompt_token_ids, beam.token_ids.as_slice()].concat();
                let step = further_step(&request, tokens, &mm_features);
                let step = self.inner.system.submit_part(step).await?;
                let next = next_tokens(step, allowed).await;
                Ok::<_, RequestError>((next.likeliest, next.finish))
            }));
            step = match aborted.run_until_cancelled(next).await {
                Some(next) => next?,
                None => vec![(Vec::new(), Some(FinishReason::Abort))],
            };
        }
        let found = search.finish().into_iter();
        Ok(output(found.map(|found| self.beam(found, params.skip_special_tokens)).collect()))
    }

    /// Returns the most tokens that the output may have.
    fn room(&self, prompt_tokens: usize, output: OutputTokens) -> Result<usize, RequestError> {
        let max_model_len = self.model_info().max_model_len;
        match output.wanted.map(|wanted| wanted as usize) {
            Some(max_tokens) if max_tokens > max_model_len => {
                Err(RequestError::ContextLength { max_model_len, prompt_tokens, max_tokens })
            }
            _ => Ok(output.within(max_model_len.saturating_sub(prompt_tokens))),
        }
    }

    fn beam(&self, (score, found): (f64, Hypothesis), skip_special_tokens: bool) -> Beam {
        let text = self.codec().decode(found.text_token_ids(), skip_special_tokens);
        Beam {
            // As everywhere, an output whose decoder fails has no text.
            text: text.unwrap_or_default(),
            tokens: found.tokens(),
            cum_logprob: found.cum_logprob,
            score,
            finish: found.finish_reason(),
        }
    }
}

/// Returns the request of the first step: one token, with the likely tokens that the search needs.
fn step_request(request: RawRequest, params: &BeamSearchParams) -> RawRequest {
    let candidates = BeamSearch::num_candidates(params.beam_width as usize) as u32;
    let params = SamplingParams {
        temperature: 0.0,
        // The search itself decides which tokens end a beam.
        ignore_eos: true,
        allowed_token_ids: params.allowed_token_ids.clone(),
        // All of them are candidates, also those that are less likely than many others.
        logprob_token_ids: params.allowed_token_ids.clone().unwrap_or_default(),
        logprobs: Some(candidates.max(params.logprobs.unwrap_or(0))),
        prompt_logprobs: params.prompt_logprobs,
        ..SamplingParams::default()
    };
    RawRequest { params, max_tokens: Some(1), bad_words: Vec::new(), ..request }
}

/// Returns the request of a later step, for a beam of `tokens`, prompt included. `mm_features` are
/// the places of the prompt's images and sounds.
fn further_step(
    first: &RawRequest,
    tokens: Vec<TokenId>,
    mm_features: &[MultimodalFeature],
) -> RawRequest {
    let params = SamplingParams { prompt_logprobs: None, ..first.params.clone() };
    let prompt = match mm_features {
        [] => Prompt::Tokens(tokens),
        features => {
            Prompt::Expanded(Arc::new(ExpandedPrompt { tokens, features: features.to_vec() }))
        }
    };
    RawRequest {
        params,
        max_tokens: Some(1),
        truncate_prompt_tokens: None,
        priority: first.priority,
        cache_salt: first.cache_salt.clone(),
        lora: first.lora.clone(),
        tenant: first.tenant,
        group: first.group,
        timeout: first.timeout,
        ..RawRequest::new(prompt)
    }
}

/// The result of one step for one beam.
#[derive(Default)]
struct NextTokens {
    likeliest: TokenLogprobs,
    finish: Option<FinishReason>,
    prompt_logprobs: Vec<TokenLogprobs>,
    num_cached_tokens: Option<usize>,
    queue_time: Option<Micros>,
}

impl NextTokens {
    /// Returns the result of an aborted step.
    fn aborted() -> Self {
        Self { finish: Some(FinishReason::Abort), ..Self::default() }
    }
}

async fn next_tokens(submission: Submission, allowed: Option<&[TokenId]>) -> NextTokens {
    let mut next = NextTokens::default();
    for mut choice in submission.choices {
        while let Some(delta) = choice.next().await {
            next.prompt_logprobs.extend(delta.prompt_logprobs);
            next.num_cached_tokens = next.num_cached_tokens.or(delta.num_cached_tokens);
            next.queue_time = next.queue_time.or(delta.queue_time);
            for token in delta.tokens {
                let row = token.logprobs.into_iter().flatten();
                next.likeliest = match allowed {
                    // The first entry is the drawn token. The entries after it contain it again.
                    None => row.skip(1).collect(),
                    Some(allowed) => likeliest_of(row, allowed),
                };
            }
            next.finish = next.finish.or(delta.finish);
        }
    }
    next
}

/// Returns the entries of the `allowed` tokens, each once, likeliest first.
fn likeliest_of(row: impl Iterator<Item = Logprob>, allowed: &[TokenId]) -> TokenLogprobs {
    let mut kept = TokenLogprobs::new();
    for entry in row.filter(|entry| allowed.contains(&entry.token_id)) {
        if kept.iter().all(|other| other.token_id != entry.token_id) {
            kept.push(entry);
        }
    }
    kept.sort_by(|a, b| b.logprob.total_cmp(&a.logprob));
    kept
}

/// Returns the only beam of a search whose step did not end by its length.
fn unwanted(finish: &Option<FinishReason>) -> Option<Beam> {
    let finish = match finish {
        Some(FinishReason::Length) => return None,
        Some(finish) => finish.clone(),
        // The engine has stopped.
        None => FinishReason::Abort,
    };
    Some(Beam { text: String::new(), tokens: Vec::new(), cum_logprob: 0.0, score: 0.0, finish })
}
