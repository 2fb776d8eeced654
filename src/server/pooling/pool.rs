//! `POST /pooling`: the result of the model's task for each input.

use axum::response::Response;

use super::{
    answer::{Pooling, Poolings},
    encoding::BinaryHead,
    request::PoolingRequest,
    run::{Results, json},
};
use crate::{
    api::PoolingTask,
    server::{
        exchange::Exchange,
        generate::usage::Usage,
        http::{error::ApiError, extract::JsonBody},
        state::AppState,
    },
};

/// `POST /pooling`
pub(in crate::server) async fn pool(
    exchange: Exchange,
    JsonBody(request): JsonBody<PoolingRequest>,
) -> Result<Response, ApiError> {
    let PoolingRequest { input, fields } = request;
    let state = &exchange.state;
    let model = fields.model(state).await?;
    let task = task(state, fields.task.as_deref())?;
    if fields.dimensions.is_some() {
        let message = "dimensions is not supported by /pooling; use /v1/embeddings";
        return Err(ApiError::invalid("dimensions", message));
    }
    let (encoding, has_rows) = (fields.encoding()?, state.engine.has_rows(task));
    let params = fields.params(state, &model, task)?;
    let inputs = input.inputs(&exchange, &model, true).await?;
    let Results { id, created, model, results, num_tokens, .. } =
        exchange.pool("/pooling", "pooling", &fields, inputs, params).await?;
    if encoding.is_binary() {
        let head = BinaryHead { id: &id, created, model: &model, num_tokens };
        return encoding.binary(head, &results, has_rows);
    }
    let num_values = results.iter().map(|pooled| pooled.values.len()).sum();
    let data = results.iter().enumerate().map(|(index, pooled)| Pooling {
        index,
        object: "pooling",
        data: encoding.numbers(pooled, has_rows),
    });
    let (data, usage) = (data.collect(), Usage::new(num_tokens, 0));
    json(Poolings { id, object: "list", created, model, data, usage }, num_values).await
}

/// Returns the model's task, which is the only one that may be asked for.
fn task(state: &AppState, asked: Option<&str>) -> Result<PoolingTask, ApiError> {
    let heads = &state.engine.model_info().heads;
    let open = state.engine.pooling_task().unwrap_or_default();
    let Some(name) = asked.filter(|name| *name != open.as_str()) else { return Ok(open) };
    let message = match name {
        "score" => "The task `score` was removed; use `classify` instead.".to_owned(),
        "encode" => "The task `encode` was removed; use `token_embed` or `token_classify` instead."
            .to_owned(),
        _ if heads.pooling.iter().any(|head| head.task.as_str() == name) => {
            format!("Try switching the model's pooling_task via --pooler-config.task {name}.")
        }
        _ => {
            let known = heads.pooling.iter().map(|head| format!("'{}'", head.task.as_str()));
            let known: Vec<_> = known.collect();
            format!("Unsupported task: '{name}' Supported tasks: [{}]", known.join(", "))
        }
    };
    Err(ApiError::invalid("task", format!("{message} (parameter=task)")))
}
