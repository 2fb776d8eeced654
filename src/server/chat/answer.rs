//! Writes the answer: in one piece, or chunk by chunk.

use axum::{
    Json,
    response::{IntoResponse, Response},
};

use super::{protocol::Style, response::ChatCompletion, stream::ChatChunks};
use crate::server::{
    generate::{
        answer::Head, choices::Choices, chunks, handler::Answer, request_log::RequestLog,
        run::whole, usage::UsageReports,
    },
    http::error::ApiError,
    memory::RequestMemory,
};

/// How to write the answer to one request.
pub(in crate::server) struct ChatAnswer {
    pub(super) id: String,
    pub(super) model: String,
    pub(super) style: Style,
    pub(super) reports: UsageReports,
    pub(super) show_cached: bool,
    pub(super) is_streamed: bool,
    /// Bytes of the echoed message in all choices.
    pub(super) echoed_bytes: usize,
}

impl Answer for ChatAnswer {
    async fn reserve(&mut self, memory: &RequestMemory) -> Result<(), ApiError> {
        memory.grow(self.echoed_bytes).await
    }

    async fn respond(self, mut choices: Choices, log: RequestLog) -> Result<Response, ApiError> {
        let Self { id, model, style, reports, show_cached, .. } = self;
        if self.is_streamed {
            let head = Head::new(id, "chat.completion.chunk", model);
            let chunks = ChatChunks::new(head, style, reports, &choices);
            return Ok(chunks::respond(choices, chunks, reports, show_cached, log));
        }
        let finished = whole(&mut choices, log).await?;
        let head = Head::new(id, "chat.completion", model);
        let usage = choices.usage(show_cached);
        Ok(Json(ChatCompletion::new(head, &style, &choices, finished, usage)).into_response())
    }
}
