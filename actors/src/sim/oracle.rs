//! The stream of a choice in an engine without failures, in the simplest form: no actors, no steps,
//! no increments.

use super::{
    adapter, grammar,
    media::{self, extend_with},
    model::{self, Sampler, empty_digest, logprobs},
    vocabulary::{EOS_TOKENS, bytes_of},
    workload::{Effect, Poison},
};
use crate::logic::request::{
    FinishReason, StopReason,
    failure::Failure,
    ids::TokenId,
    lora::LoraRequest,
    outputs::{Pooled, SampledToken, TokenLogprobs},
    pooling_params::PoolingParams,
    sampling_params::SamplingParams,
};
use crate::ports::RawMedia;

/// One choice of a request.
#[derive(Debug, Clone)]
pub struct Question<'a> {
    /// The prompt, after truncation.
    pub prompt: &'a [TokenId],
    /// Keeps its KV apart from the KV of other salts.
    pub cache_salt: Option<&'a str>,
    /// The images of the prompt.
    pub images: &'a [RawMedia],
    /// The adapter.
    pub lora: Option<&'a LoraRequest>,
    /// Parameters. `max_tokens` is the rest of the context if the client gave none.
    pub params: &'a SamplingParams,
    /// Present if the request pools.
    pub pooling: Option<&'a PoolingParams>,
    /// Seed of this choice.
    pub seed: u64,
    /// Maximum number of tokens of prompt and output.
    pub max_model_len: usize,
    /// Number of tokens that the KV cache can hold.
    pub cache_tokens: usize,
    /// Present if the model cannot compute the prompt to its end.
    pub poison: Option<&'a Poison>,
}

/// A whole stream.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// All text.
    pub text: String,
    /// The text of all tokens, including text that a stop string removes.
    pub whole_text: String,
    /// All tokens.
    pub tokens: Vec<SampledToken>,
    /// The result of a pooling request.
    pub pooled: Option<Pooled>,
    /// One row for each prompt token except the first, if they were asked for.
    pub prompt_logprobs: Vec<TokenLogprobs>,
    /// Reason of its end.
    pub finish: FinishReason,
}

/// Returns the stream that `question` gets.
#[must_use]
pub fn answer(question: &Question<'_>) -> Answer {
    let of_adapter = question.lora.and_then(adapter::failure);
    if let Some(pooling) = question.pooling {
        let failure = of_adapter.or_else(|| media::failure(question.images));
        return failure.map_or_else(|| pooled(question, pooling), failed);
    }
    let params = question.params;
    let format = params.structured_output.as_deref();
    // A request waits for its grammar first.
    let of_images = media::failure(question.images);
    if let Some(failure) = format.and_then(grammar::failure).or(of_adapter).or(of_images) {
        return failed(failure);
    }
    let ignore_eos = params.ignore_eos && format.is_none();
    let mut stop_token_ids = params.stop_token_ids.clone();
    if !ignore_eos {
        stop_token_ids.push(EOS_TOKENS[1]);
    }
    let params = SamplingParams { stop_token_ids, ignore_eos, ..params.clone() };
    let sampler = Sampler { params: &params, seed: question.seed };

    let mut digest = empty_digest(question.cache_salt, question.lora.map_or(0, adapter::digest));
    let features = media::features(question.images);
    let mut prompt_logprobs = Vec::new();
    for (position, &token) in question.prompt.iter().enumerate() {
        if let Some(count) = params.prompt_logprobs.filter(|_| position > 0) {
            prompt_logprobs.push(logprobs(digest, token, count));
        }
        digest = extend_with(digest, token, position, &features);
    }

    let mut tokens: Vec<SampledToken> = Vec::new();
    let mut bytes = Vec::new();
    // Length of the text in which no further stop string can end, in bytes.
    let mut settled = 0;
    let (text, whole_text, finish) = loop {
        let position = question.prompt.len() + tokens.len();
        let last = tokens.last().map(|token| token.token_id);
        let poison = question.poison.filter(|poison| tokens.len() >= poison.after);
        let error = format.and_then(|it| grammar::break_off(it, tokens.len(), last));
        let failure = match (poison, error) {
            // A panic comes before the grammar. Garbage shows when a token is drawn, after it.
            (Some(poison), error) if error.is_none() || poison.effect == Effect::Panic => {
                Some(poison.finish())
            }
            (_, error) => error.map(|error| FinishReason::Error(Failure::InvalidGrammar(error))),
        };
        if let Some(finish) = failure {
            let text = shown(&bytes);
            break (text.clone(), text, finish);
        }
        let token = sampler.sample(digest, position, tokens.len(), last);
        let token_id = token.token_id;
        digest = extend_with(digest, token_id, position, &features);
        tokens.push(token);
        let finish = finish_of(question, &params, token_id, tokens.len());
        let is_hidden =
            matches!(finish, Some(FinishReason::Stop(_))) && !params.include_stop_str_in_output;
        if !is_hidden {
            bytes.extend_from_slice(bytes_of(token_id, params.skip_special_tokens));
        }
        if finish.is_none() && params.stop.is_empty() {
            continue;
        }
        let text = shown(&bytes);
        if tokens.len() > params.min_tokens as usize
            && let Some((kept, stop)) = stopped(&text, settled, &params)
        {
            let finish = FinishReason::Stop(Some(StopReason::String(stop)));
            break (text[..kept].to_owned(), text, finish);
        }
        settled = text.len();
        if let Some(finish) = finish {
            break (text.clone(), text, finish);
        }
    };
    Answer { text, whole_text, tokens, pooled: None, prompt_logprobs, finish }
}

/// Returns the answer of a pooling request.
fn pooled(question: &Question<'_>, params: &PoolingParams) -> Answer {
    let mut digest = empty_digest(question.cache_salt, question.lora.map_or(0, adapter::digest));
    let features = media::features(question.images);
    let digests = question.prompt.iter().enumerate().map(|(position, &token)| {
        digest = extend_with(digest, token, position, &features);
        digest
    });
    let digests: Vec<_> = digests.collect();
    let answer = failed(Failure::NumericalGarbage);
    match question.poison.filter(|poison| poison.after == 0) {
        Some(poison) => Answer { finish: poison.finish(), ..answer },
        None => {
            let pooled = Some(model::pooled(params, &digests));
            Answer { pooled, finish: FinishReason::Stop(None), ..answer }
        }
    }
}

/// Returns an answer that is only a failure.
fn failed(failure: Failure) -> Answer {
    Answer {
        text: String::new(),
        whole_text: String::new(),
        tokens: Vec::new(),
        pooled: None,
        prompt_logprobs: Vec::new(),
        finish: FinishReason::Error(failure),
    }
}

/// Returns the text that is shown, without half a character at the end.
fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end_matches('\u{FFFD}').to_owned()
}

fn finish_of(
    question: &Question<'_>,
    params: &SamplingParams,
    last: TokenId,
    num_outputs: usize,
) -> Option<FinishReason> {
    let num_tokens = question.prompt.len() + num_outputs;
    if !params.ignore_eos && last == EOS_TOKENS[0] {
        Some(FinishReason::Stop(None))
    } else if params.stop_token_ids.contains(&last) {
        Some(FinishReason::Stop(Some(StopReason::Token(last))))
    } else if num_outputs >= params.max_tokens as usize
        || num_tokens >= question.max_model_len
        || num_tokens > question.cache_tokens
    {
        Some(FinishReason::Length)
    } else {
        None
    }
}

/// Returns the stop string that is complete first after the first `settled` bytes, and the length
/// of the kept text.
fn stopped(text: &str, settled: usize, params: &SamplingParams) -> Option<(usize, String)> {
    let ends = (settled + 1..=text.len()).filter(|&end| text.is_char_boundary(end));
    for end in ends {
        if let Some(stop) = params.stop.iter().find(|stop| text[..end].ends_with(*stop)) {
            let cut = if params.include_stop_str_in_output { 0 } else { stop.len() };
            return Some((end - cut, stop.clone()));
        }
    }
    None
}
