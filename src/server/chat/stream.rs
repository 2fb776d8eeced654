//! The answer chunk by chunk.

use axum::body::Bytes;
use serde::Serialize;

use super::{delta::Delta, protocol::Style};
use crate::api::OutputDelta;
use crate::server::{
    generate::{
        answer::{Head, StoppedBy},
        choices::{ChoiceDelta, Choices},
        chunks::{Chunk, ChunkFormat},
        logprobs::{ChatLogprobs, ChatLogprobsWriter},
        usage::{Usage, UsageReports},
    },
    http::sse,
    state::SYSTEM_FINGERPRINT,
    turn::TurnReader,
};

#[derive(Serialize)]
struct ChunkChoice {
    index: usize,
    delta: Delta,
    logprobs: Option<ChatLogprobs>,
    finish_reason: Option<&'static str>,
    /// Present only beside a finish reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    stop_reason: Option<Option<StoppedBy>>,
    token_ids: Option<Vec<u32>>,
}

/// The prompt, as far as the first chunk of a choice tells of it.
#[derive(Default)]
struct ShownPrompt<'a> {
    token_ids: Option<&'a [u32]>,
    text: Option<&'a str>,
}

/// Writes the chunks of a chat completion.
pub(in crate::server) struct ChatChunks {
    head: Head,
    style: Style,
    reports: UsageReports,
    choices: Vec<ChoiceState>,
}

struct ChoiceState {
    begun: bool,
    num_tokens: usize,
    turn: TurnReader,
    logprobs: Option<ChatLogprobsWriter>,
}

impl ChatChunks {
    pub(super) fn new(head: Head, style: Style, reports: UsageReports, choices: &Choices) -> Self {
        let state = |index| ChoiceState {
            begun: false,
            num_tokens: 0,
            turn: style.turn.reader(&head.id, index, choices.prompt_of(index)),
            logprobs: style.logprobs_writer(),
        };
        let choices = (0..choices.len()).map(state).collect();
        Self { head, style, reports, choices }
    }

    /// Returns the first chunk of a choice: the role, and the text that the answer continues.
    fn opening(&self, index: usize, prompt: &[u32]) -> Bytes {
        let choice = ChunkChoice {
            index,
            delta: Delta::opening(&self.style.role, &self.style.echoed),
            logprobs: None,
            finish_reason: None,
            stop_reason: None,
            token_ids: None,
        };
        let shown = ShownPrompt {
            token_ids: self.style.prompt_ids.then_some(prompt),
            text: self.style.prompt_text.as_deref(),
        };
        self.chunk(choice, prompt, shown)
    }

    /// Returns the chunk for new output. Returns `None` while the reader waits for more.
    fn news(&mut self, index: usize, delta: &OutputDelta, prompt: &[u32]) -> Option<Bytes> {
        let state = &mut self.choices[index];
        state.num_tokens += delta.tokens.len();
        let mut parts = Delta::of(state.turn.push(delta));
        let tells_tokens = self.style.token_ids || state.logprobs.is_some();
        let is_silent = parts.is_empty() && delta.finish.is_none() && !tells_tokens;
        if is_silent && !self.style.turn.is_plain() {
            return None;
        }
        if parts.is_empty() {
            parts.content = Some(String::new());
        }
        let finish_reason = delta.finish.as_ref().map(|finish| state.turn.finish_reason(finish));
        let token_ids = || delta.tokens.iter().map(|token| token.token_id).collect();
        let choice = ChunkChoice {
            index,
            delta: parts,
            logprobs: state.logprobs.as_mut().map(|writer| writer.write(&delta.tokens)),
            finish_reason,
            stop_reason: delta.finish.as_ref().map(StoppedBy::from),
            token_ids: self.style.token_ids.then(token_ids),
        };
        Some(self.chunk(choice, prompt, ShownPrompt::default()))
    }

    fn chunk(&self, choice: ChunkChoice, prompt: &[u32], shown: ShownPrompt<'_>) -> Bytes {
        let state = &self.choices[choice.index];
        let usage = Usage::new(prompt.len(), state.num_tokens)
            .with_reasoning(state.turn.num_reasoning_tokens());
        let ends = choice.finish_reason.is_some();
        sse::event(&Chunk {
            head: &self.head,
            choices: &[choice],
            usage: self.reports.continuous.then_some(usage),
            system_fingerprint: (ends && !self.reports.at_end).then_some(SYSTEM_FINGERPRINT),
            metrics: None,
            prompt_token_ids: shown.token_ids,
            prompt_text: shown.text,
        })
    }
}

impl ChunkFormat for ChatChunks {
    fn write(&mut self, news: ChoiceDelta, choices: &Choices) -> Vec<Bytes> {
        let ChoiceDelta { index, delta } = news;
        if delta.tokens.is_empty() && delta.text.is_empty() && delta.finish.is_none() {
            return Vec::new();
        }
        let prompt = choices.prompt_of(index);
        let is_first = !std::mem::replace(&mut self.choices[index].begun, true);
        let opening = is_first.then(|| self.opening(index, prompt));
        opening.into_iter().chain(self.news(index, &delta, prompt)).collect()
    }

    fn usage(&self, usage: Usage, choices: &Choices) -> Bytes {
        let reasoning = self.choices.iter().map(|choice| choice.turn.num_reasoning_tokens()).sum();
        sse::event(&Chunk::<ChunkChoice> {
            head: &self.head,
            choices: &[],
            usage: Some(usage.with_reasoning(reasoning)),
            system_fingerprint: Some(SYSTEM_FINGERPRINT),
            metrics: self.style.metrics.then(|| choices.metrics()),
            prompt_token_ids: None,
            prompt_text: None,
        })
    }
}
