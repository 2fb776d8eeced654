//! From the request to the response.

use axum::{
    Json,
    extract::State,
    http::HeaderMap,
    response::{IntoResponse, Response},
};

use super::{
    protocol::{CompletionRequest, Plan},
    response::Completion,
    stream::CompletionChunks,
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

/// `POST /v1/completions`
pub(in crate::server) async fn create(
    State(state): State<AppState>,
    caller: Caller,
    headers: HeaderMap,
    memory: RequestMemory,
    JsonBody(request): JsonBody<CompletionRequest>,
) -> Result<Response, ApiError> {
    let Plan { model, requests, style, usage, beam_search } = request.plan(&state)?;
    memory.grow(request.echoed_bytes(&requests)).await?;
    let id = response_id("cmpl", &headers, request.sampling.request_id.as_deref());
    let mut log = RequestLog::new(id.clone(), "/v1/completions", caller.tenant);
    let head = Head::new(id, "text_completion", model);
    let names = [head.id.as_str(), chosen(&head.id)];
    let submitted = match beam_search {
        None => Choices::submit(&state, &names, caller, memory, requests).await,
        Some(penalty) => {
            Choices::beam_search(&state, &names, caller, memory, requests, penalty).await
        }
    };
    let mut choices = submitted.inspect_err(|_| log.end("refused"))?;
    let show_cached = state.config.enable_prompt_tokens_details;
    if request.sampling.stream == Some(true) {
        let chunks = CompletionChunks::new(head, style, usage, &choices);
        return Ok(respond(choices, chunks, usage, show_cached, log));
    }
    let finished = choices.finish().await;
    log.count(&choices);
    log.end(if finished.is_ok() { "complete" } else { "failed" });
    let usage = choices.usage(show_cached);
    Ok(Json(Completion::new(head, &style, &choices, finished?, usage)).into_response())
}
