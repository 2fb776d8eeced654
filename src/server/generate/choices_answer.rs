//! The answer of OpenAI's older protocols: choices, in one piece or in chunks.

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use serde::Serialize;

use super::{
    choices::{Choices, FinishedChoice},
    chunks::{ChunkFormat, respond},
    handler::Answer,
    request_log::RequestLog,
    run::whole,
    usage::{Usage, UsageReports},
};
use crate::server::{http::error::ApiError, memory::RequestMemory, resume::Mode};

/// Writes choices in the form of one protocol.
pub(in crate::server) trait ChoicesFormat: Send + Sized {
    /// The writer of chunks.
    type Chunks: ChunkFormat;
    /// The answer in one piece.
    type Whole: Serialize;

    /// Returns a writer for the chunks of `choices`.
    fn chunks(self, reports: UsageReports, choices: &Choices) -> Self::Chunks;

    /// Returns the answer for `finished`, which are all of `choices`.
    fn whole(self, choices: &Choices, finished: Vec<FinishedChoice>, usage: Usage) -> Self::Whole;
}

/// The answer to one request.
pub(in crate::server) struct ChoicesAnswer<F> {
    pub(in crate::server) format: F,
    pub(in crate::server) reports: UsageReports,
    pub(in crate::server) show_cached: bool,
    pub(in crate::server) is_streamed: bool,
    /// Bytes of the text that all choices repeat.
    pub(in crate::server) echoed_bytes: usize,
}

impl<F: ChoicesFormat + 'static> Answer for ChoicesAnswer<F> {
    fn mode(&self) -> Mode {
        if self.is_streamed { Mode::Stream } else { Mode::Whole }
    }

    async fn reserve(&mut self, memory: &RequestMemory) -> Result<(), ApiError> {
        memory.grow(self.echoed_bytes).await
    }

    async fn respond(self, mut choices: Choices, log: RequestLog) -> Result<Response, ApiError> {
        let Self { format, reports, show_cached, .. } = self;
        if self.is_streamed {
            let chunks = format.chunks(reports, &choices);
            return respond(choices, chunks, reports, show_cached, log);
        }
        let finished = whole(&mut choices, log).await?;
        let usage = choices.usage(show_cached);
        Ok(Json(format.whole(&choices, finished, usage)).into_response())
    }
}
