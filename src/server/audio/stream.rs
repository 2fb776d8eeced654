//! The answer as a stream. The pieces of a sound are computed at once, and sent one after the
//! other.

use std::collections::VecDeque;

use axum::{body::Bytes, response::Response};
use serde::{Serialize, Serializer};

use super::answer::Heard;
use crate::{
    api::FinishReason,
    engine::{Speech, SpeechTask, Transcript},
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
        pieces: (0..choices.len()).map(|_| Piece::new(speech)).collect(),
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

/// A piece whose text is sent when those before it have ended.
struct Piece {
    /// The text that is not sent yet.
    waiting: VecDeque<News>,
    transcript: Transcript,
}

impl Piece {
    fn new(speech: &Speech) -> Self {
        Self { waiting: VecDeque::new(), transcript: speech.transcript() }
    }
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
    pieces: Vec<Piece>,
}

impl Chunks {
    fn usage(&self) -> TokenUsage {
        let (prompt_tokens, completion_tokens) = (self.num_prompt_tokens, self.num_tokens);
        let total_tokens = prompt_tokens + completion_tokens;
        TokenUsage { prompt_tokens, total_tokens, completion_tokens }
    }

    /// Returns the event for new output of the current piece. `None` if all of it waits.
    fn event(&mut self, news: News) -> Option<Bytes> {
        let is_last = self.current + 1 == self.pieces.len();
        let has_ended = news.finish.is_some();
        self.num_tokens += news.num_tokens;
        let transcript = self.pieces.get_mut(self.current).map(|piece| &mut piece.transcript);
        let mut content = transcript.map_or_else(String::new, |it| it.push(&news.text, has_ended));
        if content.is_empty() && !news.text.is_empty() && !has_ended {
            return None;
        }
        if has_ended && !is_last {
            content.push_str(self.joint);
        }
        let finish = news
            .finish
            .map(|finish| Finish { stop_reason: StoppedBy::from(&finish), finish_reason: finish });
        let choices = [ChunkChoice { delta: Content { content }, finish }];
        let usage = self.reports.continuous.then(|| self.usage());
        Some(sse::event(&Chunk { head: &self.head, choices: &choices, usage }))
    }
}

impl EventWriter for Chunks {
    type Event = Bytes;

    fn write(&mut self, news: ChoiceDelta, _: &Choices) -> Vec<Bytes> {
        let ChoiceDelta { index, delta } = news;
        let num_tokens = delta.tokens.len();
        let news = News { text: delta.text, num_tokens, finish: delta.finish };
        let is_empty = news.text.is_empty() && num_tokens == 0 && news.finish.is_none();
        if let Some(piece) = self.pieces.get_mut(index).filter(|_| !is_empty) {
            piece.waiting.push_back(news);
        }
        let mut events = Vec::new();
        let next = |pieces: &mut Vec<Piece>, at: usize| pieces.get_mut(at)?.waiting.pop_front();
        while let Some(news) = next(&mut self.pieces, self.current) {
            let has_ended = news.finish.is_some();
            events.extend(self.event(news));
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
