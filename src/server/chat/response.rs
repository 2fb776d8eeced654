//! The answer in one piece.

use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::protocol::Style;
use crate::server::{
    generate::{
        answer::{Head, StoppedBy},
        choices::{Choices, FinishedChoice},
        logprobs::{ChatLogprobs, prompt_logprobs},
        request_metrics::RequestMetrics,
        usage::Usage,
    },
    state::SYSTEM_FINGERPRINT,
    turn::{ToolCall, Turn},
};

/// The body of an answer that is not streamed.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::server) struct ChatCompletion {
    #[serde(flatten)]
    head: Head,
    choices: Vec<Choice>,
    service_tier: Option<String>,
    system_fingerprint: &'static str,
    usage: Usage,
    prompt_logprobs: Option<Vec<Option<Map<String, Value>>>>,
    prompt_token_ids: Option<Vec<u32>>,
    prompt_text: Option<String>,
    kv_transfer_params: Option<Value>,
    metrics: Option<RequestMetrics>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ChatChoice)]
struct Choice {
    index: usize,
    message: Message,
    logprobs: Option<ChatLogprobs>,
    finish_reason: &'static str,
    stop_reason: Option<StoppedBy>,
    token_ids: Option<Vec<u32>>,
}

/// A message. Most fields exist for clients that look for the key.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ChatMessage)]
struct Message {
    role: String,
    content: Option<String>,
    refusal: Option<String>,
    annotations: Option<Value>,
    audio: Option<Value>,
    function_call: Option<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<MessageToolCall>,
    reasoning: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
struct MessageToolCall {
    id: String,
    r#type: &'static str,
    function: Function,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = CalledFunction)]
struct Function {
    name: String,
    /// JSON as text.
    arguments: String,
}

impl From<ToolCall> for MessageToolCall {
    fn from(call: ToolCall) -> Self {
        let function = Function { name: call.name, arguments: call.arguments };
        Self { id: call.id, r#type: "function", function }
    }
}

impl ChatCompletion {
    /// Returns the answer for `finished`, which are all of `choices`.
    pub(super) fn new(
        head: Head,
        style: &Style,
        choices: &Choices,
        finished: Vec<FinishedChoice>,
        usage: Usage,
    ) -> Self {
        let prompt = choices.prompt_of(0);
        let turns: Vec<Turn> = finished
            .iter()
            .enumerate()
            .map(|(i, done)| Turn::read(style.turn.reader(&head.id, i, prompt), done))
            .collect();
        let reasoning_tokens = turns.iter().map(|turn| turn.num_reasoning_tokens).sum();
        let rows = finished.first().map(|first| first.prompt_logprobs.as_slice());
        let rows = rows.filter(|_| style.prompt_logprobs);
        Self {
            head,
            prompt_logprobs: rows.map(|rows| prompt_logprobs(&style.names, prompt, rows)),
            prompt_token_ids: style.prompt_ids.then(|| prompt.to_vec()),
            prompt_text: style.prompt_text.clone(),
            choices: std::iter::zip(&finished, turns)
                .enumerate()
                .map(|(i, (done, turn))| style.choice(i, done, turn))
                .collect(),
            service_tier: None,
            system_fingerprint: SYSTEM_FINGERPRINT,
            usage: usage.with_reasoning(reasoning_tokens),
            kv_transfer_params: None,
            metrics: style.metrics.then(|| choices.metrics()),
        }
    }
}

impl Style {
    fn choice(&self, index: usize, done: &FinishedChoice, turn: Turn) -> Choice {
        Choice {
            index,
            logprobs: self.logprobs_writer().map(|mut writer| writer.write(&done.tokens)),
            finish_reason: turn.finish_reason,
            stop_reason: StoppedBy::from(&done.finish),
            token_ids: self.token_ids.then(|| done.tokens.iter().map(|t| t.token_id).collect()),
            message: Message {
                role: self.role.clone(),
                content: self.content(turn.content),
                refusal: None,
                annotations: None,
                audio: None,
                function_call: None,
                tool_calls: turn.tool_calls.into_iter().map(MessageToolCall::from).collect(),
                reasoning: turn.reasoning,
            },
        }
    }

    /// Returns the message's content, after the text that it continues. As in vLLM, it is empty
    /// rather than null beside a call that the request forces.
    fn content(&self, content: Option<String>) -> Option<String> {
        match content {
            None if self.echoed.is_empty() && !self.turn.forces_calls() => None,
            content => Some(self.echoed.clone() + &content.unwrap_or_default()),
        }
    }
}
