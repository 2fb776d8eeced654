//! The answer chunk by chunk.

use std::collections::VecDeque;

use axum::body::Bytes;
use playhouse_actors::shell::OutputDelta;
use serde::Serialize;

use super::protocol::Style;
use crate::server::{
    answer::{Head, StoppedBy},
    choices::{ChoiceDelta, Choices},
    logprobs::{ChatLogprobs, ChatLogprobsWriter},
    sse,
    state::SYSTEM_FINGERPRINT,
    stream::ChunkFormat,
    usage::{Usage, UsageReports},
};

#[derive(Serialize)]
struct Chunk<'a> {
    #[serde(flatten)]
    head: &'a Head,
    choices: &'a [ChunkChoice<'a>],
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    system_fingerprint: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_token_ids: Option<&'a [u32]>,
}

#[derive(Serialize)]
struct ChunkChoice<'a> {
    index: usize,
    delta: Delta<'a>,
    logprobs: Option<ChatLogprobs>,
    finish_reason: Option<&'static str>,
    /// Only beside a finish reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    stop_reason: Option<Option<StoppedBy>>,
    token_ids: Option<Vec<u32>>,
}

#[derive(Serialize)]
struct Delta<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'a str>,
    content: &'a str,
}

/// Writes the chunks of a chat completion.
pub(super) struct ChatChunks {
    head: Head,
    style: Style,
    reports: UsageReports,
    choices: Vec<ChoiceState>,
}

struct ChoiceState {
    begun: bool,
    num_tokens: usize,
    logprobs: Option<ChatLogprobsWriter>,
}

impl ChatChunks {
    pub(super) fn new(head: Head, style: Style, reports: UsageReports, choices: &Choices) -> Self {
        let state =
            |_| ChoiceState { begun: false, num_tokens: 0, logprobs: style.logprobs_writer() };
        let choices = (0..choices.len()).map(state).collect();
        Self { head, style, reports, choices }
    }

    /// The first chunk of a choice says who speaks, and what an answer goes on with.
    fn opening(&self, index: usize, prompt: &[u32]) -> Bytes {
        let delta = Delta { role: Some(&self.style.role), content: &self.style.echoed };
        let choice = ChunkChoice {
            index,
            delta,
            logprobs: None,
            finish_reason: None,
            stop_reason: None,
            token_ids: None,
        };
        self.chunk(choice, prompt, self.style.token_ids.then_some(prompt))
    }

    fn news(&mut self, index: usize, delta: &OutputDelta, prompt: &[u32]) -> Bytes {
        let state = &mut self.choices[index];
        state.num_tokens += delta.tokens.len();
        let token_ids = || delta.tokens.iter().map(|token| token.token_id).collect();
        let choice = ChunkChoice {
            index,
            delta: Delta { role: None, content: &delta.text },
            logprobs: state.logprobs.as_mut().map(|writer| writer.write(&delta.tokens)),
            finish_reason: delta.finish.as_ref().map(|finish| finish.as_str()),
            stop_reason: delta.finish.as_ref().map(StoppedBy::from),
            token_ids: self.style.token_ids.then(token_ids),
        };
        self.chunk(choice, prompt, None)
    }

    fn chunk(&self, choice: ChunkChoice<'_>, prompt: &[u32], shown: Option<&[u32]>) -> Bytes {
        let usage = Usage::new(prompt.len(), self.choices[choice.index].num_tokens);
        let ends = choice.finish_reason.is_some();
        sse::event(&Chunk {
            head: &self.head,
            choices: &[choice],
            usage: self.reports.continuous.then_some(usage),
            system_fingerprint: (ends && !self.reports.at_end).then_some(SYSTEM_FINGERPRINT),
            prompt_token_ids: shown,
        })
    }
}

impl ChunkFormat for ChatChunks {
    fn write(&mut self, news: ChoiceDelta, choices: &Choices, events: &mut VecDeque<Bytes>) {
        let ChoiceDelta { index, delta } = news;
        if delta.tokens.is_empty() && delta.text.is_empty() && delta.finish.is_none() {
            return;
        }
        let prompt = choices.prompt_of(index);
        if !std::mem::replace(&mut self.choices[index].begun, true) {
            events.push_back(self.opening(index, prompt));
        }
        events.push_back(self.news(index, &delta, prompt));
    }

    fn usage(&self, usage: Usage) -> Bytes {
        sse::event(&Chunk {
            head: &self.head,
            choices: &[],
            usage: Some(usage),
            system_fingerprint: Some(SYSTEM_FINGERPRINT),
            prompt_token_ids: None,
        })
    }
}
