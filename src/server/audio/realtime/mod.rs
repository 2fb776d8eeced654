//! `/v1/realtime`: a WebSocket over which a sound arrives while it is spoken, and its text leaves.
//!
//! A sound is cut as `/v1/audio/transcriptions` cuts it, and each piece is a request as soon as it
//! is complete. So the text is that of the same sound in a file.

mod events;
mod session;
mod transcriber;
mod utterances;

use std::sync::Arc;

use axum::{
    Extension,
    extract::{State, WebSocketUpgrade, ws::rejection::WebSocketUpgradeRejection},
    http::HeaderMap,
    response::Response,
};
use tokio::sync::Semaphore;

use self::{session::Session, transcriber::Client};
use super::super::{
    http::{
        caller::Caller,
        cors,
        error::{ApiError, RETRY_AFTER_DEFAULT},
        listen::Activity,
    },
    memory::RequestMemory,
    state::AppState,
};

/// Largest message of a client, bytes: 49 seconds of sound.
const MESSAGE_BYTES_MAX: usize = 2 << 20;
/// Bytes that are read at once.
const READ_BYTES: usize = 16 << 10;

/// The places for sessions. Clones share them.
#[derive(Debug, Clone)]
pub(in crate::server) struct RealtimeSeats(Arc<Semaphore>);

impl RealtimeSeats {
    /// Returns places for `max` sessions.
    pub(in crate::server) fn new(max: usize) -> Self {
        Self(Arc::new(Semaphore::new(max.min(Semaphore::MAX_PERMITS))))
    }
}

/// `GET /v1/realtime`
pub(super) async fn open(
    State(state): State<AppState>,
    caller: Caller,
    headers: HeaderMap,
    activity: Option<Extension<Activity>>,
    socket: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
    memory: RequestMemory,
) -> Result<Response, ApiError> {
    state.speech()?;
    let socket = socket.map_err(|rejected| {
        let reason = rejected.body_text();
        ApiError::bad_request(format!("/v1/realtime is a WebSocket over HTTP/1.1: {reason}"))
    })?;
    if !cors::admits(&state.config, &headers) {
        let message = "this server has no permission for pages of other sites (allowed_origins)";
        return Err(ApiError::forbidden(message));
    }
    let seat = state.realtime.0.clone().try_acquire_owned().map_err(|_| {
        let message = "all sessions are taken (max_realtime_sessions)".to_owned();
        ApiError::unavailable(message, RETRY_AFTER_DEFAULT)
    })?;
    let upgraded = activity.map(|Extension(activity)| activity.upgrade());
    let client = Client { state, caller, headers, memory, language: None, adapter: None };
    let session = Session::new(client, seat);
    let socket = socket
        .max_message_size(MESSAGE_BYTES_MAX)
        .max_frame_size(MESSAGE_BYTES_MAX)
        .read_buffer_size(READ_BYTES);
    Ok(socket.on_upgrade(move |socket| session.serve(socket, upgraded)))
}
