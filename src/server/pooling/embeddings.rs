//! `POST /v1/embeddings`: a vector for each input.

use axum::{extract::State, http::HeaderMap, response::Response};

use super::{
    answer::{Embedding, Embeddings},
    encoding::BinaryHead,
    late_chunking,
    request::PoolingRequest,
    run::{Exchange, Results, json},
};
use crate::{
    api::PoolingTask,
    server::{
        generate::usage::Usage,
        http::{caller::Caller, error::ApiError, extract::JsonBody},
        memory::RequestMemory,
        state::AppState,
    },
};

/// `POST /v1/embeddings`
pub(in crate::server) async fn create(
    State(state): State<AppState>,
    caller: Caller,
    headers: HeaderMap,
    memory: RequestMemory,
    JsonBody(request): JsonBody<PoolingRequest>,
) -> Result<Response, ApiError> {
    let PoolingRequest { input, fields } = request;
    if state.engine.pooling_task() != Some(PoolingTask::Embed) {
        let message = "The model does not support Embeddings API";
        return Err(ApiError { param: None, ..ApiError::not_implemented("model", message) });
    }
    let model = fields.model(&state).await?;
    let encoding = fields.encoding()?;
    let params = fields.embed_params(&state, &model)?;
    let inputs = input.inputs(&state, &model, true)?;
    let is_late = fields.late_chunking.unwrap_or(false);
    let (inputs, params) = match is_late {
        true => late_chunking::join(inputs, params)?,
        false => (inputs, params),
    };
    let exchange = Exchange { state, caller, headers, memory };
    let route = "/v1/embeddings";
    let Results { id, created, model, results, num_tokens, .. } =
        exchange.pool(route, "embd", &fields, inputs, params).await?;
    let results = if is_late { late_chunking::split(&results) } else { results };
    if encoding.is_binary() {
        let head = BinaryHead { id: &id, created, model: &model, num_tokens };
        return encoding.binary(head, &results, false);
    }
    let num_values = results.iter().map(|pooled| pooled.values.len()).sum();
    let data = results.iter().enumerate().map(|(index, pooled)| Embedding {
        index,
        object: "embedding",
        embedding: encoding.numbers(pooled, false),
    });
    let (data, usage) = (data.collect(), Usage::new(num_tokens, 0));
    json(Embeddings { id, object: "list", created, model, data, usage }, num_values).await
}
