//! The request, and what it means.

use std::{fmt, sync::Arc};

use axum::http::HeaderMap;
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{Error, SeqAccess, Visitor},
};
use utoipa::ToSchema;

use super::answer::CompletionFormat;
use crate::api::{Prompt, RawRequest, RequestLanguages};
use crate::config::LimitSettings;
use crate::server::{
    generate::{
        answer::Head,
        choices_answer::ChoicesAnswer,
        handler::{Exchange, Plan, Protocol, RequestNames},
        sampling::{SamplingFields, logprobs, output_tokens},
        structured_outputs::StructuredOutputFields,
        token_names::TokenNames,
        unsupported::UnsupportedFields,
        usage::{StreamOptions, UsageReports},
    },
    http::{
        error::ApiError,
        fields::{Int, Token, flag},
        limits::at_most,
        parts::FromParts,
    },
};

/// Most prompts in one request, as in vLLM.
const MAX_PROMPTS: usize = 1024;

/// `max_tokens` where it is absent or null, as in vLLM.
const DEFAULT_MAX_TOKENS: Int = Int(16);

/// The body of `POST /v1/completions`.
pub(in crate::server) struct CompletionRequest {
    fields: CompletionFields,
    sampling: SamplingFields,
    structured: StructuredOutputFields,
    later: UnsupportedFields,
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default)]
pub(in crate::server) struct CompletionFields {
    model: Option<String>,
    prompt: Option<Prompts>,
    max_tokens: Option<Int>,
    logprobs: Option<Int>,
    #[serde(deserialize_with = "flag")]
    echo: Option<bool>,
    #[serde(deserialize_with = "flag")]
    add_special_tokens: Option<bool>,
    source_lang: Option<String>,
    target_lang: Option<String>,
    stream_options: Option<StreamOptions>,
}

/// `prompt`: a string, strings, token ids, or lists of token ids.
#[derive(Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(in crate::server) enum Prompts {
    /// The empty string, which vLLM takes for no prompt. An empty string in a list is one.
    Nothing,
    Texts(Vec<String>),
    Tokens(Vec<Vec<u32>>),
}

impl Prompts {
    pub(in crate::server) fn len(&self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Texts(texts) => texts.len(),
            Self::Tokens(lists) => lists.len(),
        }
    }
}

/// How to write a choice.
#[derive(Clone)]
pub(super) struct Style {
    /// The prompt is repeated before the output, at least in `logprobs`.
    pub(super) echo: bool,
    /// The text follows its prompt. Beside `token_ids` it does not, as in vLLM.
    pub(super) echoes_text: bool,
    /// The prompts, where they came as text and reach the model whole.
    pub(super) prompt_texts: Option<Vec<String>>,
    /// Only the prompt is wanted: `max_tokens` is 0, though the engine makes one token.
    pub(super) prompt_only: bool,
    /// Likely tokens for each token, as `logprobs` asks.
    pub(super) num_logprobs: Option<usize>,
    /// Whether `prompt_logprobs` is set.
    pub(super) prompt_logprobs: bool,
    /// Whether the answer has `token_ids` and `prompt_token_ids`.
    pub(super) token_ids: bool,
    /// Whether the answer has `metrics`.
    pub(super) metrics: bool,
    pub(super) names: TokenNames,
}

impl FromParts for CompletionRequest {
    type Parts = (CompletionFields, SamplingFields, StructuredOutputFields, UnsupportedFields);

    fn from_parts(parts: Self::Parts) -> Result<Self, ApiError> {
        let (fields, sampling, structured, later) = parts;
        Ok(Self { fields, sampling, structured, later })
    }

    fn check_limits(&self, limits: &LimitSettings) -> Result<(), ApiError> {
        let prompts = self.fields.prompt.as_ref().map_or(0, Prompts::len);
        at_most("prompt", prompts, limits.max_completion_prompts)?;
        self.sampling.check_limits(limits, prompts)
    }
}

impl Protocol for CompletionRequest {
    const ROUTE: &'static str = "/v1/completions";
    type Naming = HeaderMap;
    type Answer = ChoicesAnswer<CompletionFormat>;

    fn asked_model(&self) -> Option<&str> {
        self.fields.model.as_deref()
    }

    async fn plan(self, exchange: &Exchange<HeaderMap>) -> Result<Plan<Self::Answer>, ApiError> {
        let state = &exchange.state;
        let model = exchange.model_name(self.fields.model.as_deref())?;
        self.later.refuse()?;
        let is_streamed = self.sampling.is_streamed();
        let options = self.fields.stream_options.as_ref();
        let reports = UsageReports::new(options, is_streamed, &state.config)?;
        let beam_search = self.sampling.beam_search()?;
        let echo = self.fields.echo.unwrap_or(false);
        if echo && state.engine.codec().encoder_text().is_some() {
            let message = "echo must be false: the prompt is the text of the model's encoder, and \
                           the output does not continue it";
            return Err(ApiError::invalid("echo", message));
        }
        let mut params = self.sampling.params_of_choices(state.engine.default_sampling())?;
        params.structured_output = self.structured.output()?.map(Arc::new);
        params.logprobs = logprobs("logprobs", self.fields.logprobs)?;
        if echo {
            params.prompt_logprobs = params.prompt_logprobs.or(params.logprobs);
        }
        let num_logprobs = params.logprobs.map(|k| k as usize + params.logprob_token_ids.len());
        params.prefer_named_logprobs();
        let max_tokens = self.fields.max_tokens.unwrap_or(DEFAULT_MAX_TOKENS);
        let prompt_only = echo && max_tokens == Int(0);
        let max_tokens = match prompt_only {
            true => Some(1),
            false => output_tokens("max_tokens", Some(max_tokens))?,
        };
        let token_ids = self.sampling.return_token_ids.unwrap_or(false);
        let style = Style {
            echo,
            echoes_text: echo && !token_ids,
            prompt_texts: echo.then(|| self.whole_texts()).flatten(),
            prompt_only,
            num_logprobs,
            prompt_logprobs: params.prompt_logprobs.is_some(),
            token_ids,
            metrics: state.config.enable_per_request_metrics,
            names: self.sampling.token_names(state),
        };
        let requests = self.prompts()?.into_iter().map(|prompt| {
            let request = self.sampling.raw_request(prompt, params.clone(), max_tokens)?;
            let add_special_tokens = self.fields.add_special_tokens.unwrap_or(true);
            let max_tokens_default = state.engine.default_sampling().max_tokens;
            let languages = self.languages();
            Ok(RawRequest { add_special_tokens, languages, max_tokens_default, ..request })
        });
        let requests: Vec<_> = requests.collect::<Result<_, ApiError>>()?;
        let id = exchange.response_id("cmpl", self.sampling.request_id.as_deref());
        let names = RequestNames::of(&id);
        let answer = ChoicesAnswer {
            format: CompletionFormat {
                head: Head::new(id, "text_completion", model, exchange.draws.created),
                style,
            },
            reports,
            show_cached: state.config.enable_prompt_tokens_details,
            is_streamed,
            echoed_bytes: self.echoed_bytes(&requests),
        };
        Ok(Plan { names, requests, beam_search, answer })
    }
}

impl CompletionRequest {
    /// Returns the bytes of the prompts' copies in an answer to `requests`, one copy for each
    /// choice.
    fn echoed_bytes(&self, requests: &[RawRequest]) -> usize {
        let echoes = self.fields.echo.unwrap_or(false);
        let token_ids = self.sampling.return_token_ids.unwrap_or(false);
        let copy = |prompt: &Prompt| match prompt {
            // As text, as JSON, and on its way to the socket.
            Prompt::Text(text) if echoes => 3 * text.len(),
            // A token has at most ten digits, and its text may be as long.
            Prompt::Tokens(tokens) if echoes || token_ids => 64 * tokens.len(),
            _ => 0,
        };
        let ids = |prompt: &Prompt| match prompt {
            // A text has at most as many tokens as bytes: four bytes for each, and eight as JSON.
            Prompt::Text(text) if token_ids => 12 * text.len(),
            _ => 0,
        };
        let copies = requests.iter().map(|request| {
            let each = copy(&request.prompt) + ids(&request.prompt);
            each.saturating_mul(request.params.n as usize)
        });
        copies.fold(0, usize::saturating_add)
    }

    fn languages(&self) -> RequestLanguages {
        let CompletionFields { source_lang, target_lang, .. } = &self.fields;
        RequestLanguages { source: source_lang.clone(), target: target_lang.clone() }
    }

    fn prompts(&self) -> Result<Vec<Prompt>, ApiError> {
        let prompts: Vec<Prompt> = match &self.fields.prompt {
            None | Some(Prompts::Nothing) => {
                let message = "`prompt` must be given: a string, a list of strings, a list of \
                               token ids, or a list of lists of token ids";
                return Err(ApiError::invalid("prompt", message));
            }
            Some(Prompts::Texts(texts)) => texts.iter().cloned().map(Prompt::Text).collect(),
            Some(Prompts::Tokens(lists)) => lists.iter().cloned().map(Prompt::Tokens).collect(),
        };
        if prompts.len() > MAX_PROMPTS {
            let message = format!("prompt must be at most {MAX_PROMPTS}, got {}", prompts.len());
            return Err(ApiError::invalid("prompt", message));
        }
        if prompts.is_empty() {
            return Err(ApiError::invalid("prompt", "You must pass at least one prompt"));
        }
        Ok(prompts)
    }

    fn whole_texts(&self) -> Option<Vec<String>> {
        match &self.fields.prompt {
            Some(Prompts::Texts(texts)) if !self.sampling.truncates() => Some(texts.clone()),
            _ => None,
        }
    }
}

/// One item of a list of prompts.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a string, a token id or a list of token ids")]
enum Item {
    Text(String),
    Token(Token),
    Tokens(Vec<Token>),
}

fn ids(tokens: Vec<Token>) -> Vec<u32> {
    tokens.into_iter().map(|Token(id)| id).collect()
}

struct PromptsVisitor;

impl<'de> Visitor<'de> for PromptsVisitor {
    type Value = Prompts;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string, or a list of strings, of token ids or of lists of token ids")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Prompts, E> {
        Ok(match text {
            "" => Prompts::Nothing,
            text => Prompts::Texts(vec![text.to_owned()]),
        })
    }

    /// Reads a list. Its first item decides its kind, and the others are read as that kind. So a
    /// prompt of many tokens takes no more memory than the tokens do.
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Prompts, A::Error> {
        match list.next_element()? {
            None => Ok(Prompts::Texts(Vec::new())),
            Some(Item::Text(first)) => {
                let mut texts = vec![first];
                while let Some(text) = list.next_element()? {
                    texts.push(text);
                }
                Ok(Prompts::Texts(texts))
            }
            Some(Item::Token(Token(first))) => {
                let mut tokens = vec![first];
                while let Some(Token(token)) = list.next_element()? {
                    tokens.push(token);
                }
                Ok(Prompts::Tokens(vec![tokens]))
            }
            Some(Item::Tokens(first)) => {
                let mut lists = vec![ids(first)];
                while let Some(tokens) = list.next_element()? {
                    lists.push(ids(tokens));
                }
                Ok(Prompts::Tokens(lists))
            }
        }
    }
}

impl<'de> Deserialize<'de> for Prompts {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(PromptsVisitor)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::server::http::extract::parse_object;

    fn read(prompt: Value) -> Result<Option<Prompts>, ApiError> {
        let body = json!({ "prompt": prompt }).to_string();
        parse_object::<CompletionFields>(&body).map(|fields| fields.prompt)
    }

    #[test]
    fn the_four_kinds_of_prompts() {
        let texts = |texts: &[&str]| {
            Some(Prompts::Texts(texts.iter().map(|&text| text.to_owned()).collect()))
        };
        assert_eq!(read(json!("a")).unwrap(), texts(&["a"]));
        assert_eq!(read(json!(["a", "b"])).unwrap(), texts(&["a", "b"]));
        assert_eq!(read(json!([1, 2])).unwrap(), Some(Prompts::Tokens(vec![vec![1, 2]])));
        let lists = Prompts::Tokens(vec![vec![1, 2], vec![3]]);
        assert_eq!(read(json!([[1, 2], [3]])).unwrap(), Some(lists));
        assert_eq!(read(Value::Null).unwrap(), None);
        assert_eq!(read(json!([])).unwrap(), texts(&[]));
    }

    #[test]
    fn anything_else_is_refused_by_name() {
        let wrong = [json!(5), json!({"a": 1}), json!([1, "a"]), json!(["a", 1]), json!([-1])];
        for prompt in wrong {
            let param = read(prompt.clone()).unwrap_err().param.unwrap();
            assert!(param.starts_with("body.prompt"), "{prompt}: {param}");
        }
    }

    #[test]
    fn an_empty_text_is_no_prompt_unless_it_is_in_a_list() {
        assert_eq!(read(json!("")).unwrap(), Some(Prompts::Nothing));
        assert_eq!(read(json!([""])).unwrap(), Some(Prompts::Texts(vec![String::new()])));
    }
}
