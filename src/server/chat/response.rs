//! The answer in one piece.

use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::protocol::Style;
use crate::server::{
    answer::{Head, StoppedBy},
    choices::{Choices, FinishedChoice},
    logprobs::{ChatLogprobs, prompt_logprobs},
    state::SYSTEM_FINGERPRINT,
    usage::Usage,
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
    kv_transfer_params: Option<Value>,
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

/// Most of it is there for clients that look for the key.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ChatMessage)]
struct Message {
    role: String,
    content: String,
    refusal: Option<String>,
    annotations: Option<Value>,
    audio: Option<Value>,
    function_call: Option<Value>,
    reasoning: Option<String>,
}

impl ChatCompletion {
    /// The answer for `finished`, which are all of `choices`.
    pub(super) fn new(
        head: Head,
        style: &Style,
        choices: &Choices,
        finished: Vec<FinishedChoice>,
        usage: Usage,
    ) -> Self {
        let prompt = choices.prompt_of(0);
        let rows = finished.first().map(|first| first.prompt_logprobs.as_slice());
        let rows = rows.filter(|_| style.prompt_logprobs);
        Self {
            head,
            prompt_logprobs: rows.map(|rows| prompt_logprobs(&style.names, prompt, rows)),
            prompt_token_ids: style.token_ids.then(|| prompt.to_vec()),
            choices: finished
                .into_iter()
                .enumerate()
                .map(|(i, done)| style.choice(i, done))
                .collect(),
            service_tier: None,
            system_fingerprint: SYSTEM_FINGERPRINT,
            usage,
            kv_transfer_params: None,
        }
    }
}

impl Style {
    fn choice(&self, index: usize, done: FinishedChoice) -> Choice {
        Choice {
            index,
            logprobs: self.logprobs_writer().map(|mut writer| writer.write(&done.tokens)),
            finish_reason: done.finish.as_str(),
            stop_reason: StoppedBy::from(&done.finish),
            token_ids: self.token_ids.then(|| done.tokens.iter().map(|t| t.token_id).collect()),
            message: Message {
                role: self.role.clone(),
                content: self.echoed.clone() + &done.text,
                refusal: None,
                annotations: None,
                audio: None,
                function_call: None,
                reasoning: None,
            },
        }
    }
}
