//! Writes the answer: in one piece, or chunk by chunk.

use axum::{
    Json,
    response::{IntoResponse, Response},
};

use super::{protocol::Style, response::Completion, stream::CompletionChunks};
use crate::server::{
    generate::{
        answer::Head, choices::Choices, chunks, handler::Answer, request_log::RequestLog,
        run::whole, usage::UsageReports,
    },
    http::error::ApiError,
    memory::RequestMemory,
};

/// How to write the answer to one request.
pub(in crate::server) struct CompletionAnswer {
    pub(super) head: Head,
    pub(super) style: Style,
    pub(super) reports: UsageReports,
    pub(super) show_cached: bool,
    pub(super) is_streamed: bool,
    /// Bytes of the prompts' copies in it.
    pub(super) echoed_bytes: usize,
}

impl Answer for CompletionAnswer {
    async fn reserve(&mut self, memory: &RequestMemory) -> Result<(), ApiError> {
        memory.grow(self.echoed_bytes).await
    }

    async fn respond(self, mut choices: Choices, log: RequestLog) -> Result<Response, ApiError> {
        let Self { head, style, reports, show_cached, .. } = self;
        if self.is_streamed {
            let chunks = CompletionChunks::new(head, style, reports, &choices);
            return Ok(chunks::respond(choices, chunks, reports, show_cached, log));
        }
        let finished = whole(&mut choices, log).await?;
        let usage = choices.usage(show_cached);
        Ok(Json(Completion::new(head, &style, &choices, finished, usage)).into_response())
    }
}
