//! From the request to the response.

use axum::{
    Json,
    extract::State,
    http::HeaderMap,
    response::{IntoResponse, Response},
};

use super::{
    protocol::{ChatRequest, Plan},
    response::ChatCompletion,
    stream::ChatChunks,
};
use crate::server::{
    generate::{answer::Head, choices::Choices, chunks::respond, request_log::RequestLog},
    http::{
        caller::Caller,
        error::ApiError,
        extract::JsonBody,
        request_id::{chosen, response_id},
    },
    memory::RequestMemory,
    state::AppState,
};

/// `POST /v1/chat/completions`
pub(in crate::server) async fn create(
    State(state): State<AppState>,
    caller: Caller,
    headers: HeaderMap,
    memory: RequestMemory,
    JsonBody(request): JsonBody<ChatRequest>,
) -> Result<Response, ApiError> {
    let Plan { model, request: raw, style, usage, beam_search } = request.plan(&state)?;
    // Each choice begins with it: as text, as JSON, and on its way.
    let echoed = style.echoed.len().saturating_mul(3 * raw.params.n as usize);
    memory.grow(echoed).await?;
    let id = response_id("chatcmpl", &headers, request.sampling.request_id.as_deref());
    let mut log = RequestLog::new(id.clone(), "/v1/chat/completions", caller.tenant);
    let names = [id.as_str(), chosen(&id)];
    let submitted = match beam_search {
        None => Choices::submit(&state, &names, caller, memory, vec![raw]).await,
        Some(penalty) => {
            Choices::beam_search(&state, &names, caller, memory, vec![raw], penalty).await
        }
    };
    let mut choices = submitted.inspect_err(|_| log.end("refused"))?;
    let show_cached = state.config.enable_prompt_tokens_details;
    if request.sampling.stream == Some(true) {
        let head = Head::new(id, "chat.completion.chunk", model);
        let chunks = ChatChunks::new(head, style, usage, &choices);
        return Ok(respond(choices, chunks, usage, show_cached, log));
    }
    let finished = choices.finish().await;
    log.count(&choices);
    log.end(if finished.is_ok() { "complete" } else { "failed" });
    let head = Head::new(id, "chat.completion", model);
    let usage = choices.usage(show_cached);
    Ok(Json(ChatCompletion::new(head, &style, &choices, finished?, usage)).into_response())
}
