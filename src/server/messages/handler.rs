//! From the request to the response.

use axum::{
    Extension, Json,
    extract::State,
    response::{IntoResponse, Response},
};
use uuid::Uuid;

use super::{
    error::RequestId,
    protocol::{MessagesRequest, Plan},
    response::Message,
    stream::respond,
};
use crate::server::{
    generate::{choices::Choices, request_log::RequestLog},
    http::{caller::Caller, error::ApiError, extract::JsonBody},
    memory::RequestMemory,
    state::AppState,
};

/// `POST /v1/messages`
pub(in crate::server) async fn create(
    State(state): State<AppState>,
    caller: Caller,
    Extension(request_id): Extension<RequestId>,
    memory: RequestMemory,
    JsonBody(request): JsonBody<MessagesRequest>,
) -> Result<Response, ApiError> {
    let Plan { model, request, style, is_stream } = request.plan(&state)?;
    let mut log = RequestLog::new(request_id.0.clone(), "/v1/messages", caller.tenant);
    let id = format!("msg_{}", Uuid::new_v4().simple());
    let names = [id.as_str(), &request_id.0];
    let submitted = Choices::submit(&state, &names, caller, memory, vec![request]).await;
    let mut choices = submitted.inspect_err(|_| log.end("refused"))?;
    let reader = style.turn.reader(&id, 0, choices.prompt_of(0));
    let message = Message::begun(id, model, &choices);
    if is_stream {
        return Ok(respond(choices, message, reader, style, request_id, log));
    }
    let finished = choices.finish().await;
    log.count(&choices);
    log.end(if finished.is_ok() { "complete" } else { "failed" });
    let done = finished?.into_iter().next();
    let done = done.ok_or_else(|| ApiError::internal("the request has no output"))?;
    Ok(Json(message.completed(&style, &choices, reader, done)?).into_response())
}
