//! The answer as a stream. The pieces of a sound are computed at once, and sent one after the
//! other.

use std::collections::VecDeque;

use axum::{body::Bytes, response::Response};
use serde::{Serialize, Serializer};

use super::answer::Heard;
use crate::{
    api::FinishReason,
    engine::{Speech, SpeechTask},
    server::{
        generate::{
            answer::{Head, StoppedBy},
            choices::{ChoiceDelta, Choices},
            request_log::RequestLog,
            run::{EventWriter, Run},
            usage::UsageReports,
        },
        http::{error::ApiError, sse},
    },
};

/// Returns the first fields of all chunks.
pub(super) fn head(id: String, task: SpeechTask, model: String, created: u64) -> Head {
    let object = match task {
        SpeechTask::Transcribe => "transcription.chunk",
        SpeechTask::Translate => "translation.chunk",
    };
    Head::new(id, object, model, created)
}

/// Returns a response that sends the texts of the pieces in order.
///
/// # Errors
/// When the stream cannot be kept.
pub(super) fn respond(
    choices: Choices,
    head: Head,
    reports: UsageReports,
    speech: &Speech,
    heard: &Heard,
    log: RequestLog,
) -> Result<Response, ApiError> {
    let writer = Chunks {
        head,
        reports,
        num_prompt_tokens: choices.prompt_of(0).len() + speech.num_audio_tokens(heard.seconds),
        num_tokens: 0,
        joint: speech.joint(heard.language),
        current: 0,
        waiting: (0..choices.len()).map(|_| VecDeque::new()).collect(),
    };
    Run::new(choices, writer, log).stream(Vec::new())
}

/// One event.
#[derive(Serialize)]
struct Chunk<'a> {
    #[serde(flatten)]
    head: &'a Head,
    choices: &'a [ChunkChoice],
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<TokenUsage>,
}

#[derive(Serialize)]
struct ChunkChoice {
    delta: Content,
    #[serde(flatten)]
    finish: Option<Finish>,
}

#[derive(Serialize)]
struct Content {
    content: String,
}

/// The last fields of a piece.
#[derive(Serialize)]
struct Finish {
    #[serde(serialize_with = "reason")]
    finish_reason: FinishReason,
    stop_reason: Option<StoppedBy>,
}

fn reason<S: Serializer>(finish: &FinishReason, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(finish.as_str())
}

/// The tokens of a request. Times of the sound count as tokens of the prompt.
#[derive(Serialize)]
struct TokenUsage {
    prompt_tokens: usize,
    total_tokens: usize,
    completion_tokens: usize,
}

/// New text of a piece.
struct News {
    text: String,
    num_tokens: usize,
    finish: Option<FinishReason>,
}

/// Writes chunks.
struct Chunks {
    head: Head,
    reports: UsageReports,
    num_prompt_tokens: usize,
    num_tokens: usize,
    /// The text between pieces.
    joint: &'static str,
    /// The piece whose text is sent.
    current: usize,
    /// The text of each piece that is not sent yet.
    waiting: Vec<VecDeque<News>>,
}

impl Chunks {
    fn usage(&self) -> TokenUsage {
        let (prompt_tokens, completion_tokens) = (self.num_prompt_tokens, self.num_tokens);
        let total_tokens = prompt_tokens + completion_tokens;
        TokenUsage { prompt_tokens, total_tokens, completion_tokens }
    }

    /// Returns the event for new text of the current piece.
    fn event(&mut self, news: News) -> Bytes {
        let is_last = self.current + 1 == self.waiting.len();
        let mut content = news.text;
        if news.finish.is_some() && !is_last {
            content.push_str(self.joint);
        }
        self.num_tokens += news.num_tokens;
        let finish = news
            .finish
            .map(|finish| Finish { stop_reason: StoppedBy::from(&finish), finish_reason: finish });
        let choices = [ChunkChoice { delta: Content { content }, finish }];
        let usage = self.reports.continuous.then(|| self.usage());
        sse::event(&Chunk { head: &self.head, choices: &choices, usage })
    }
}

impl EventWriter for Chunks {
    type Event = Bytes;

    fn write(&mut self, news: ChoiceDelta, _: &Choices) -> Vec<Bytes> {
        let ChoiceDelta { index, delta } = news;
        let num_tokens = delta.tokens.len();
        let news = News { text: delta.text, num_tokens, finish: delta.finish };
        let is_empty = news.text.is_empty() && num_tokens == 0 && news.finish.is_none();
        if let Some(waiting) = self.waiting.get_mut(index).filter(|_| !is_empty) {
            waiting.push_back(news);
        }
        let mut events = Vec::new();
        while let Some(news) = self.waiting.get_mut(self.current).and_then(VecDeque::pop_front) {
            let has_ended = news.finish.is_some();
            events.push(self.event(news));
            self.current += usize::from(has_ended);
        }
        events
    }

    fn complete(&mut self, _: &Choices) -> Result<Vec<Bytes>, ApiError> {
        let usage = Chunk { head: &self.head, choices: &[], usage: Some(self.usage()) };
        let usage = self.reports.at_end.then(|| sse::event(&usage));
        Ok(usage.into_iter().chain([sse::DONE]).collect())
    }

    fn fail(&mut self, error: ApiError, _: &Choices) -> Vec<Bytes> {
        tracing::error!(message = %error.message, "a stream failed");
        vec![sse::event(&error.body()), sse::DONE]
    }
}
