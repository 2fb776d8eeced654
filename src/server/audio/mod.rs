//! `/v1/audio/transcriptions` and `/v1/audio/translations`: sounds become text.
//!
//! A form brings a file. Longer sounds are cut into pieces, and each piece is a request for the
//! engine. If the client names no language, one more request finds it first. `realtime` does the
//! same for sounds that arrive over a WebSocket while they are spoken.

mod answer;
mod form;
mod hear;
mod realtime;
mod request;
mod segments;
mod stream;

use axum::{
    Router,
    extract::DefaultBodyLimit,
    response::Response,
    routing::{get, post},
};

pub(super) use self::{
    answer::{Transcription, Translation},
    form::ObjectBody,
    realtime::RealtimeSeats,
};

use self::{form::SpeechForm, hear::hear};
use super::{exchange::Exchange, http::error::ApiError, state::AppState};
use crate::engine::SpeechTask;

/// Returns the routes of a model that writes down what it hears.
pub(super) fn routes() -> Router<AppState> {
    Router::new()
        .route("/v1/audio/transcriptions", post(transcribe))
        .route("/v1/audio/translations", post(translate))
        .route("/v1/realtime", get(realtime::open))
        // The form has limits of its own.
        .layer(DefaultBodyLimit::disable())
}

/// `POST /v1/audio/transcriptions`
async fn transcribe(exchange: Exchange, form: SpeechForm) -> Result<Response, ApiError> {
    hear(exchange, form, SpeechTask::Transcribe).await
}

/// `POST /v1/audio/translations`
async fn translate(exchange: Exchange, form: SpeechForm) -> Result<Response, ApiError> {
    hear(exchange, form, SpeechTask::Translate).await
}
