//! Writes the answer: in one piece, or event by event.

use axum::{
    Json,
    response::{IntoResponse, Response},
};

use super::{error::RequestId, protocol::Style, response::Message, stream};
use crate::server::{
    generate::{choices::Choices, handler::Answer, request_log::RequestLog, run::whole},
    http::error::ApiError,
    resume::Mode,
};

/// The answer to one request.
pub(in crate::server) struct MessageAnswer {
    pub(super) id: String,
    pub(super) request_id: RequestId,
    pub(super) model: String,
    pub(super) style: Style,
    pub(super) is_streamed: bool,
}

impl Answer for MessageAnswer {
    fn mode(&self) -> Mode {
        if self.is_streamed { Mode::Stream } else { Mode::Whole }
    }

    async fn respond(self, mut choices: Choices, log: RequestLog) -> Result<Response, ApiError> {
        let Self { id, request_id, model, style, is_streamed } = self;
        let reader = style.turn.reader(&id, 0, choices.prompt_of(0));
        let message = Message::begun(id, model, &choices);
        if is_streamed {
            return stream::respond(choices, message, reader, style, request_id, log);
        }
        let done = whole(&mut choices, log).await?.into_iter().next();
        let done = done.ok_or_else(|| ApiError::internal("the request has no output"))?;
        Ok(Json(message.completed(&style, &choices, reader, done)?).into_response())
    }
}
