//! `POST /generative_scoring`: how likely the first of some tokens follows a query with each item.

use axum::{
    Json,
    http::HeaderMap,
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    completions::Prompts,
    generate::{
        choices::{Choices, FinishedChoice},
        handler::{Answer, Exchange, Plan, Protocol, RequestNames},
        request_log::RequestLog,
        run::whole,
        usage::Usage,
    },
    http::{
        error::ApiError,
        fields::{Int, Token, flag},
        limits::{at_most, cache_salt},
        parts::FromParts,
        request_id::SCORING,
    },
    memory::RequestMemory,
    resume::Mode,
    state::AppState,
};
use crate::{
    api::{Prompt, RawRequest, RequestError, SamplingParams, WantedTokens},
    config::LimitSettings,
};

/// The body of `POST /generative_scoring`.
pub(super) struct ScoringRequest(ScoringFields);

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default)]
pub(super) struct ScoringFields {
    model: Option<String>,
    /// A text, or the ids of its tokens.
    query: Option<Prompts>,
    items: Option<Prompts>,
    /// The tokens to compare. The score is the probability of the first.
    label_token_ids: Option<Vec<Token>>,
    /// Whether the probabilities of these tokens add up to one. Otherwise each is that among the
    /// whole vocabulary.
    #[serde(deserialize_with = "flag")]
    apply_softmax: Option<bool>,
    /// Whether the item stands before the query.
    #[serde(deserialize_with = "flag")]
    item_first: Option<bool>,
    #[serde(deserialize_with = "flag")]
    add_special_tokens: Option<bool>,
    cache_salt: Option<String>,
    priority: Option<Int>,
    request_id: Option<String>,
}

/// The answer, an entry for each item.
#[derive(Serialize, ToSchema)]
pub(super) struct ItemScores {
    id: String,
    object: &'static str,
    created: u64,
    model: String,
    data: Vec<ItemScore>,
    usage: Usage,
}

#[derive(Serialize, ToSchema)]
struct ItemScore {
    index: usize,
    object: &'static str,
    score: f32,
}

/// Writes the answer.
pub(super) struct ScoringAnswer {
    id: String,
    created: u64,
    model: String,
    labels: Vec<u32>,
    apply_softmax: bool,
    show_cached: bool,
}

impl FromParts for ScoringRequest {
    type Parts = (ScoringFields,);

    fn from_parts((fields,): Self::Parts) -> Result<Self, ApiError> {
        Ok(Self(fields))
    }

    fn check_limits(&self, limits: &LimitSettings) -> Result<(), ApiError> {
        let count = self.0.items.as_ref().map_or(0, Prompts::len);
        at_most("items", count, limits.max_completion_prompts)
    }
}

/// The query, or an item.
enum Part {
    Text(String),
    Tokens(Vec<u32>),
}

impl Part {
    fn all(field: Prompts) -> Vec<Self> {
        match field {
            Prompts::Nothing => vec![Self::Text(String::new())],
            Prompts::Texts(texts) => texts.into_iter().map(Self::Text).collect(),
            Prompts::Tokens(lists) => lists.into_iter().map(Self::Tokens).collect(),
        }
    }

    /// Returns its tokens, of which the context must have room for all.
    async fn tokens(
        self,
        state: &AppState,
        add_special_tokens: bool,
    ) -> Result<Vec<u32>, ApiError> {
        let text = match self {
            Self::Tokens(tokens) => return check_length(state, tokens.len()).map(|()| tokens),
            Self::Text(text) => text,
        };
        let wanted = WantedTokens::UpTo(state.engine.model_info().max_model_len);
        let jobs = state.engine.text_jobs();
        // A client that leaves drops this future.
        let encoded = jobs.encode(text, add_special_tokens, wanted, &|| false).await?;
        check_length(state, encoded.num_tokens)?;
        Ok(encoded.tokens)
    }
}

/// Rejects a prompt that is longer than the context, before it is made for each item.
fn check_length(state: &AppState, min_prompt_tokens: usize) -> Result<(), ApiError> {
    let max_model_len = state.engine.model_info().max_model_len;
    match min_prompt_tokens <= max_model_len {
        true => Ok(()),
        false => Err(RequestError::PromptTooLong { max_model_len, min_prompt_tokens }.into()),
    }
}

/// Returns the tokens of the query with each item. The two are read as separate texts, as in vLLM,
/// so no token spans both. Each prompt has the query, so their memory is leased before.
async fn prompts(
    state: &AppState,
    memory: &RequestMemory,
    (query, items): (Part, Vec<Part>),
    item_first: bool,
    add_special_tokens: bool,
) -> Result<Vec<Vec<u32>>, ApiError> {
    let query = query.tokens(state, add_special_tokens && !item_first).await?;
    let (mut parts, mut num_tokens) = (Vec::with_capacity(items.len()), 0);
    for item in items {
        let item = item.tokens(state, add_special_tokens && item_first).await?;
        check_length(state, query.len() + item.len())?;
        num_tokens += query.len() + item.len();
        parts.push(item);
    }
    memory.grow(num_tokens * size_of::<u32>()).await?;
    let prompt = |item: Vec<u32>| match item_first {
        true => [&item[..], &query].concat(),
        false => [&query[..], &item].concat(),
    };
    Ok(parts.into_iter().map(prompt).collect())
}

fn required<T>(field: &str, value: Option<T>) -> Result<T, ApiError> {
    value.ok_or_else(|| ApiError::validation(&format!("body.{field}"), "Field required"))
}

impl Protocol for ScoringRequest {
    const ROUTE: &'static str = "/generative_scoring";
    type Naming = HeaderMap;
    type Answer = ScoringAnswer;

    fn asked_model(&self) -> Option<&str> {
        self.0.model.as_deref()
    }

    async fn plan(self, exchange: &Exchange<HeaderMap>) -> Result<Plan<Self::Answer>, ApiError> {
        let Self(fields) = self;
        let model = exchange.model_name(fields.model.as_deref())?;
        let query = Part::all(required("query", fields.query)?);
        let items = Part::all(required("items", fields.items)?);
        let labels = required("label_token_ids", fields.label_token_ids)?;
        let labels: Vec<u32> = labels.into_iter().map(|Token(id)| id).collect();
        for (field, is_empty) in
            [("items", items.is_empty()), ("label_token_ids", labels.is_empty())]
        {
            if is_empty {
                return Err(ApiError::invalid(field, format!("{field} must not be empty")));
            }
        }
        let is_first = fields.item_first.unwrap_or(false);
        let add_special_tokens = fields.add_special_tokens.unwrap_or(true);
        cache_salt(fields.cache_salt.as_deref())?;
        let priority = fields.priority.unwrap_or(Int(0)).cast("priority", "a 32-bit integer")?;
        let Ok([query]) = <[Part; 1]>::try_from(query) else {
            let message = "query must be one text, or the ids of its tokens";
            return Err(ApiError::invalid("query", message));
        };
        let parts = (query, items);
        let prompts =
            prompts(&exchange.state, &exchange.memory, parts, is_first, add_special_tokens);
        let prompts = prompts.await?;
        let request = |prompt: Vec<u32>| RawRequest {
            params: SamplingParams {
                temperature: 0.0,
                logprobs: Some(0),
                logprob_token_ids: labels.clone(),
                ..SamplingParams::default()
            },
            max_tokens: Some(1),
            priority,
            cache_salt: fields.cache_salt.clone(),
            ..RawRequest::new(Prompt::Tokens(prompt))
        };
        let requests = prompts.into_iter().map(request).collect();
        let id = exchange.response_id(SCORING, fields.request_id.as_deref());
        let names = RequestNames::of(&id);
        let answer = ScoringAnswer {
            id,
            created: exchange.draws.created,
            model,
            labels,
            apply_softmax: fields.apply_softmax.unwrap_or(true),
            show_cached: exchange.state.config.enable_prompt_tokens_details,
        };
        Ok(Plan { names, requests, beam_search: None, answer })
    }
}

impl Answer for ScoringAnswer {
    fn mode(&self) -> Mode {
        Mode::Whole
    }

    async fn respond(self, mut choices: Choices, log: RequestLog) -> Result<Response, ApiError> {
        let finished = whole(&mut choices, log).await?;
        let scores = finished.iter().map(|done| self.score(done));
        let scores: Option<Vec<f32>> = scores.collect();
        let scores = scores.ok_or_else(|| ApiError::internal("a label has no probability"))?;
        let data = scores.into_iter().enumerate();
        let data = data.map(|(index, score)| ItemScore { index, object: "score", score }).collect();
        let usage = choices.usage(self.show_cached);
        let Self { id, created, model, .. } = self;
        let object = "list";
        Ok(Json(ItemScores { id, object, created, model, data, usage }).into_response())
    }
}

impl ScoringAnswer {
    /// Returns the probability of the first label after the prompt of a choice.
    fn score(&self, done: &FinishedChoice) -> Option<f32> {
        let row = done.tokens.first()?.logprobs.as_deref()?;
        let logprob = |label: &u32| row.iter().find(|entry| entry.token_id == *label);
        let logprobs: Option<Vec<f32>> =
            self.labels.iter().map(|label| logprob(label).map(|entry| entry.logprob)).collect();
        probability_of_first(&logprobs?, self.apply_softmax)
    }
}

/// Returns the probability of the first, among all of `logprobs` or as it is.
fn probability_of_first(logprobs: &[f32], apply_softmax: bool) -> Option<f32> {
    let first = *logprobs.first()?;
    if !apply_softmax {
        return Some(first.exp());
    }
    let highest = logprobs.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f32 = logprobs.iter().map(|logprob| (logprob - highest).exp()).sum();
    Some((first - highest).exp() / sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_share_one_or_keep_their_own_probability() {
        let logprobs = [0.1_f32.ln(), 0.3_f32.ln()];
        let close = |found: Option<f32>, expected: f32| (found.unwrap() - expected).abs() < 1e-6;
        assert!(close(probability_of_first(&logprobs, true), 0.25));
        assert!(close(probability_of_first(&logprobs, false), 0.1));
        assert_eq!(probability_of_first(&[], true), None);
    }
}
