//! `POST /classify`: the class of each input.

use axum::{extract::State, http::HeaderMap, response::Response};

use super::{
    answer::{Class, Classes},
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

/// `POST /classify`
pub(in crate::server) async fn classify(
    State(state): State<AppState>,
    caller: Caller,
    headers: HeaderMap,
    memory: RequestMemory,
    JsonBody(request): JsonBody<PoolingRequest>,
) -> Result<Response, ApiError> {
    let PoolingRequest { input, fields } = request;
    if state.engine.pooling_task() != Some(PoolingTask::Classify) {
        let message = "The model does not support Classification API";
        return Err(ApiError { param: None, ..ApiError::not_implemented("model", message) });
    }
    let model = fields.model(&state).await?;
    let params = fields.params(&state, &model, PoolingTask::Classify)?;
    let inputs = input.inputs(&state, &model, false)?;
    let exchange = Exchange { state, caller, headers, memory };
    let Results { id, created, model, results, num_tokens, .. } =
        exchange.pool("/classify", "classify", &fields, inputs, params).await?;
    let num_values = results.iter().map(|pooled| pooled.values.len()).sum();
    let data = results.into_iter().enumerate().map(|(index, pooled)| {
        let probs = pooled.values.to_vec();
        let label = exchange.state.engine.label_of(&probs);
        Class { index, label, num_classes: probs.len(), probs }
    });
    let (data, usage) = (data.collect(), Usage::new(num_tokens, 0));
    json(Classes { id, object: "list", created, model, data, usage }, num_values).await
}
