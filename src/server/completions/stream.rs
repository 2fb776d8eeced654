//! The answer chunk by chunk.

use axum::body::Bytes;
use serde::Serialize;

use super::protocol::Style;
use crate::api::{Logprob, OutputDelta};
use crate::server::{
    generate::{
        answer::{Head, StoppedBy},
        choices::{ChoiceDelta, Choices},
        chunks::{Chunk, ChunkFormat},
        logprobs::{CompletionLogprobs, CompletionLogprobsWriter},
        usage::{Usage, UsageReports},
    },
    http::sse,
    state::SYSTEM_FINGERPRINT,
};

#[derive(Serialize)]
struct ChunkChoice {
    index: usize,
    text: String,
    logprobs: Option<CompletionLogprobs>,
    finish_reason: Option<&'static str>,
    stop_reason: Option<StoppedBy>,
    prompt_token_ids: Option<Vec<u32>>,
    token_ids: Option<Vec<u32>>,
}

/// Writes the chunks of a completion.
pub(in crate::server) struct CompletionChunks {
    head: Head,
    style: Style,
    reports: UsageReports,
    choices: Vec<ChoiceState>,
}

#[derive(Default)]
struct ChoiceState {
    begun: bool,
    num_tokens: usize,
    /// Rows of an echoed prompt. They come before the first token, in pieces.
    prompt_logprobs: Vec<Vec<Logprob>>,
    logprobs: Option<CompletionLogprobsWriter>,
}

impl CompletionChunks {
    pub(super) fn new(head: Head, style: Style, reports: UsageReports, choices: &Choices) -> Self {
        let state = |_| ChoiceState { logprobs: style.logprobs_writer(), ..Default::default() };
        let choices = (0..choices.len()).map(state).collect();
        Self { head, style, reports, choices }
    }

    fn choice(&mut self, index: usize, mut delta: OutputDelta, choices: &Choices) -> ChunkChoice {
        let Self { style, choices: states, .. } = self;
        let state = &mut states[index];
        let prompt = choices.prompt_of(index);
        let is_first = !std::mem::replace(&mut state.begun, true);
        state.num_tokens += delta.tokens.len();
        let finish = delta.finish.take();
        if style.prompt_only {
            (delta.text, delta.tokens) = Default::default();
        }
        let mut text = delta.text;
        if is_first && let Some(mut echoed) = style.echoed(index, choices) {
            echoed.push_str(&text);
            text = echoed;
        }
        let logprobs = state.logprobs.as_mut().map(|writer| {
            if is_first {
                style.write_prompt(writer, prompt, &state.prompt_logprobs);
            }
            delta.tokens.iter().for_each(|token| writer.push(token));
            writer.take()
        });
        let shows_prompt = is_first && (style.echo || style.token_ids);
        ChunkChoice {
            index,
            text,
            logprobs,
            finish_reason: finish.as_ref().map(|finish| finish.as_str()),
            stop_reason: finish.as_ref().and_then(StoppedBy::from),
            prompt_token_ids: shows_prompt.then(|| prompt.to_vec()),
            token_ids: style.token_ids.then(|| delta.tokens.iter().map(|t| t.token_id).collect()),
        }
    }
}

impl ChunkFormat for CompletionChunks {
    fn write(&mut self, news: ChoiceDelta, choices: &Choices) -> Vec<Bytes> {
        let ChoiceDelta { index, mut delta } = news;
        self.choices[index].prompt_logprobs.append(&mut delta.prompt_logprobs);
        if delta.tokens.is_empty() && delta.text.is_empty() && delta.finish.is_none() {
            return Vec::new();
        }
        let ends = delta.finish.is_some();
        let choice = self.choice(index, delta, choices);
        let num_prompt_tokens = choices.num_input_tokens_of(index);
        let usage = Usage::new(num_prompt_tokens, self.choices[index].num_tokens);
        vec![sse::event(&Chunk {
            head: &self.head,
            choices: &[choice],
            usage: self.reports.continuous.then_some(usage),
            system_fingerprint: (ends && !self.reports.at_end).then_some(SYSTEM_FINGERPRINT),
            metrics: None,
            prompt_token_ids: None,
            prompt_text: None,
        })]
    }

    fn usage(&self, usage: Usage, choices: &Choices) -> Bytes {
        sse::event(&Chunk::<ChunkChoice> {
            head: &self.head,
            choices: &[],
            usage: Some(usage),
            system_fingerprint: Some(SYSTEM_FINGERPRINT),
            metrics: self.style.metrics.then(|| choices.metrics()),
            prompt_token_ids: None,
            prompt_text: None,
        })
    }
}
