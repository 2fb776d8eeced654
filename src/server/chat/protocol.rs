//! The request, and what it means.

use axum::http::HeaderMap;
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::{answer::ChatFormat, conversation::ConversationFields};
use crate::api::{ChatPrompt, Prompt, RawRequest};
use crate::config::LimitSettings;
use crate::server::{
    generate::{
        choices_answer::ChoicesAnswer,
        handler::{Exchange, Plan, Protocol, RequestNames},
        logprobs::ChatLogprobsWriter,
        sampling::{SamplingFields, logprobs, output_tokens},
        structured_outputs::StructuredOutputFields,
        token_names::TokenNames,
        unsupported::UnsupportedFields,
        usage::{StreamOptions, UsageReports},
    },
    http::{
        error::ApiError,
        fields::{Int, flag},
        parts::FromParts,
    },
    turn::{TurnRequest, TurnStyle, readings},
};
use crate::turn::ToolChoice;

/// The body of `POST /v1/chat/completions`.
pub(in crate::server) struct ChatRequest {
    fields: ChatFields,
    conversation: ConversationFields,
    sampling: SamplingFields,
    structured: StructuredOutputFields,
    later: UnsupportedFields,
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(default)]
pub(in crate::server) struct ChatFields {
    model: Option<String>,
    max_tokens: Option<Int>,
    max_completion_tokens: Option<Int>,
    #[serde(deserialize_with = "flag")]
    logprobs: Option<bool>,
    top_logprobs: Option<Int>,
    #[serde(deserialize_with = "flag")]
    echo: Option<bool>,
    #[serde(deserialize_with = "flag")]
    parallel_tool_calls: Option<bool>,
    #[serde(deserialize_with = "flag")]
    include_reasoning: Option<bool>,
    thinking_token_budget: Option<Int>,
    #[serde(deserialize_with = "flag")]
    return_prompt_text: Option<bool>,
    stream_options: Option<StreamOptions>,
}

/// The form of a message.
#[derive(Clone)]
pub(super) struct Style {
    /// The role that writes the message.
    pub(super) role: String,
    /// The message that the answer continues, if it is to be repeated.
    pub(super) echoed: String,
    /// The parsers for the model's output.
    pub(super) turn: TurnStyle,
    /// Likely tokens for each token, as `logprobs` asks.
    pub(super) num_logprobs: Option<usize>,
    /// Whether `prompt_logprobs` is set.
    pub(super) prompt_logprobs: bool,
    /// Whether the answer has `prompt_token_ids`.
    pub(super) prompt_ids: bool,
    /// The prompt that the chat template wrote, if the answer is to have it.
    pub(super) prompt_text: Option<String>,
    /// Whether choices have `token_ids`.
    pub(super) token_ids: bool,
    /// Whether the answer has `metrics`.
    pub(super) metrics: bool,
    pub(super) names: TokenNames,
}

impl Style {
    /// Returns a writer of `logprobs` if they are wanted.
    pub(super) fn logprobs_writer(&self) -> Option<ChatLogprobsWriter> {
        let num_top = self.num_logprobs?;
        Some(ChatLogprobsWriter::new(self.names.clone(), num_top))
    }
}

impl FromParts for ChatRequest {
    type Parts =
        (ChatFields, ConversationFields, SamplingFields, StructuredOutputFields, UnsupportedFields);

    fn from_parts(parts: Self::Parts) -> Result<Self, ApiError> {
        let (fields, conversation, sampling, structured, later) = parts;
        Ok(Self { fields, conversation, sampling, structured, later })
    }

    fn check_limits(&self, limits: &LimitSettings) -> Result<(), ApiError> {
        self.conversation.check_limits(limits)?;
        self.sampling.check_limits(limits, 1)
    }
}

impl Protocol for ChatRequest {
    const ROUTE: &'static str = "/v1/chat/completions";
    type Naming = HeaderMap;
    type Answer = ChoicesAnswer<ChatFormat>;

    fn asked_model(&self) -> Option<&str> {
        self.fields.model.as_deref()
    }

    async fn plan(self, exchange: &Exchange<HeaderMap>) -> Result<Plan<Self::Answer>, ApiError> {
        let state = &exchange.state;
        let model = exchange.model_name(self.fields.model.as_deref())?;
        self.later.refuse_but(&[
            "thinking_token_budget",
            "mm_processor_kwargs",
            "media_io_kwargs",
        ])?;
        let is_streamed = self.sampling.is_streamed();
        let options = self.fields.stream_options.as_ref();
        let reports = UsageReports::new(options, is_streamed, &state.config)?;
        let beam_search = self.sampling.beam_search()?;
        let defaults = state.engine.default_sampling();
        let mut params = self.sampling.params_of_choices(defaults)?;
        params.logprobs = self.fields.logprobs()?;
        let (chat, tool_choice, media) = self.conversation.prompt(state, &model)?;
        if matches!(tool_choice, ToolChoice::Named(_)) && self.structured.excludes_named_tools() {
            let message = "You can only either use constraints for structured outputs or tools, \
                           not both.";
            return Err(ApiError::invalid("structured_outputs", message));
        }
        let role = speaker(&chat);
        let include_reasoning = self.fields.include_reasoning.unwrap_or(true);
        // Tokens would tell the thoughts that the message leaves out.
        let tells_tokens = include_reasoning || !state.parsers.finds_thoughts();
        let prompt_ids = self.sampling.return_token_ids.unwrap_or(false);
        let num_logprobs = params.logprobs.map(|k| match params.logprob_token_ids.len() {
            0 => k as usize,
            // The token itself is among them.
            named => 1 + k as usize + named,
        });
        params.prefer_named_logprobs();
        if !is_streamed && beam_search.is_none() {
            params.prompt_logprobs = params.prompt_logprobs.or(self.fields.echoed_logprobs()?);
        }
        let prompt_logprobs = params.prompt_logprobs;
        let echoed = match self.fields.echo {
            Some(true) => last_words(&chat, &role),
            Some(false) | None => String::new(),
        };
        let turn = TurnRequest {
            chat,
            tool_choice,
            parallel_tool_calls: self.fields.parallel_tool_calls.unwrap_or(true),
            format: self.structured.output()?,
            thinking_token_budget: self.fields.thinking_token_budget()?,
            include_reasoning,
            params,
            max_tokens: self.fields.output_tokens()?,
        };
        let (RawRequest { prompt, params, max_tokens, .. }, turn) = turn.plan(state)?;
        let prompt_text = match &prompt {
            Prompt::Chat(chat) if self.fields.return_prompt_text == Some(true) => {
                Some(state.engine.text_jobs().render(chat).await?)
            }
            _ => None,
        };
        let style = Style {
            echoed,
            role,
            turn: turn.noted_by(readings(state, is_streamed, "chat_completions")),
            num_logprobs: num_logprobs.filter(|_| tells_tokens),
            prompt_logprobs: prompt_logprobs.is_some(),
            prompt_ids,
            prompt_text,
            token_ids: prompt_ids && tells_tokens,
            metrics: state.config.enable_per_request_metrics,
            names: self.sampling.token_names(state),
        };
        let request = self.sampling.raw_request(prompt, params, max_tokens)?;
        let add_special_tokens = self.conversation.adds_special_tokens();
        let max_tokens_default = defaults.max_tokens;
        let media = media.load(&state.media, &exchange.memory).await?;
        let request = RawRequest { media, add_special_tokens, max_tokens_default, ..request };
        let id = exchange.response_id("chatcmpl", self.sampling.request_id.as_deref());
        let names = RequestNames::of(&id);
        // Each choice begins with them: as text, as JSON, and on their way to the socket.
        let text_bytes = style.echoed.len() + style.prompt_text.as_ref().map_or(0, String::len);
        let answer = ChoicesAnswer {
            reports,
            show_cached: state.config.enable_prompt_tokens_details,
            is_streamed,
            echoed_bytes: text_bytes.saturating_mul(3 * request.params.n as usize),
            format: ChatFormat { id, created: exchange.draws.created, model, style },
        };
        Ok(Plan { names, requests: vec![request], beam_search, answer })
    }
}

impl ChatFields {
    fn output_tokens(&self) -> Result<Option<u32>, ApiError> {
        let newer = output_tokens("max_completion_tokens", self.max_completion_tokens)?;
        Ok(newer.or(output_tokens("max_tokens", self.max_tokens)?))
    }

    /// Returns the most tokens of thought. -1 means no limit.
    fn thinking_token_budget(&self) -> Result<Option<u32>, ApiError> {
        let budget = self.thinking_token_budget.filter(|&budget| budget != Int(-1));
        budget
            .map(|budget| budget.cast("thinking_token_budget", "-1 (no bound), or at least 0"))
            .transpose()
    }

    /// Returns the likely tokens for each token of the prompt that `echo` asks for, as in vLLM.
    fn echoed_logprobs(&self) -> Result<Option<u32>, ApiError> {
        match self.echo {
            Some(true) => Ok(Some(logprobs("top_logprobs", self.top_logprobs)?.unwrap_or(0))),
            Some(false) | None => Ok(None),
        }
    }

    fn logprobs(&self) -> Result<Option<u32>, ApiError> {
        let top = logprobs("top_logprobs", self.top_logprobs)?;
        match (self.logprobs.unwrap_or(false), top) {
            (true, top) => Ok(Some(top.unwrap_or(0))),
            (false, None | Some(0)) => Ok(None),
            (false, Some(_)) => {
                let message = "when using `top_logprobs`, `logprobs` must be set to true.";
                Err(ApiError::invalid("top_logprobs", message))
            }
        }
    }
}

/// Returns the role of the next message: the assistant's, unless the answer continues an open
/// message.
fn speaker(chat: &ChatPrompt) -> String {
    let last = chat.messages.last().and_then(|message| message["role"].as_str());
    match last {
        Some(role) if !chat.add_generation_prompt => role.to_owned(),
        _ => "assistant".to_owned(),
    }
}

/// Returns the text of the last message, if it has this role.
fn last_words(chat: &ChatPrompt, role: &str) -> String {
    let last = chat.messages.last().filter(|message| message["role"] == role);
    match last.map(|message| &message["content"]) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => {
            let texts: Vec<&str> = parts.iter().filter_map(|part| part["text"].as_str()).collect();
            texts.join("\n")
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::server::http::extract::parse_object;

    fn fields(body: Value) -> ChatFields {
        parse_object(&body.to_string()).unwrap()
    }

    #[test]
    fn top_logprobs_need_logprobs() {
        let logprobs = |body| fields(body).logprobs();
        assert_eq!(logprobs(json!({})), Ok(None));
        assert_eq!(logprobs(json!({"logprobs": true})), Ok(Some(0)));
        assert_eq!(logprobs(json!({"logprobs": true, "top_logprobs": 3})), Ok(Some(3)));
        assert_eq!(logprobs(json!({"logprobs": false, "top_logprobs": 0})), Ok(None));
        let error = logprobs(json!({"top_logprobs": 3})).unwrap_err();
        assert_eq!(error.param.as_deref(), Some("top_logprobs"));
    }

    /// vLLM's `to_sampling_params`: without `prompt_logprobs`, `echo` asks for `top_logprobs`.
    #[test]
    fn echo_asks_for_the_likely_tokens_of_the_prompt() {
        let echoed = |body| fields(body).echoed_logprobs();
        assert_eq!(echoed(json!({"top_logprobs": 3})), Ok(None));
        assert_eq!(echoed(json!({"echo": true})), Ok(Some(0)));
        assert_eq!(echoed(json!({"echo": true, "top_logprobs": 3})), Ok(Some(3)));
    }

    #[test]
    fn the_newer_name_of_max_tokens_wins() {
        let tokens = |body| fields(body).output_tokens().map_err(|error| error.param.unwrap());
        assert_eq!(tokens(json!({})), Ok(None));
        assert_eq!(tokens(json!({"max_tokens": 5})), Ok(Some(5)));
        assert_eq!(tokens(json!({"max_tokens": 5, "max_completion_tokens": 7})), Ok(Some(7)));
        assert_eq!(tokens(json!({"max_tokens": 0})), Err("max_tokens".to_owned()));
        assert_eq!(tokens(json!({"max_tokens": -1})), Err("max_tokens".to_owned()));
    }

    #[test]
    fn an_open_message_keeps_its_speaker() {
        let messages = vec![json!({"role": "user", "content": [{"type": "text", "text": "a"}]})];
        let mut chat =
            ChatPrompt { messages, add_generation_prompt: true, ..ChatPrompt::default() };
        assert_eq!(speaker(&chat), "assistant");
        assert_eq!(last_words(&chat, "assistant"), "");
        chat.add_generation_prompt = false;
        assert_eq!(speaker(&chat), "user");
        assert_eq!(last_words(&chat, "user"), "a");
    }
}
