//! `POST /classify`: the class of each input.

use axum::response::Response;

use super::{
    answer::{Class, Classes},
    request::PoolingRequest,
    run::{Results, json},
};
use crate::{
    api::PoolingTask,
    server::{
        exchange::Exchange,
        generate::usage::Usage,
        http::{error::ApiError, extract::JsonBody},
    },
};

/// `POST /classify`
pub(in crate::server) async fn classify(
    exchange: Exchange,
    JsonBody(request): JsonBody<PoolingRequest>,
) -> Result<Response, ApiError> {
    let PoolingRequest { input, fields } = request;
    exchange.require(PoolingTask::Classify, "Classification API")?;
    let state = &exchange.state;
    let model = fields.model(state).await?;
    let params = fields.params(state, &model, PoolingTask::Classify)?;
    let inputs = input.inputs(&exchange, &model, false).await?;
    let Results { id, created, model, results, num_tokens, .. } =
        exchange.pool("/classify", "classify", &fields, inputs, params).await?;
    let num_values = results.iter().map(|pooled| pooled.values.len()).sum();
    let data = results.into_iter().enumerate().map(|(index, pooled)| {
        let probs = pooled.values.to_vec();
        let label = state.engine.label_of(&probs);
        Class { index, label, num_classes: probs.len(), probs }
    });
    let (data, usage) = (data.collect(), Usage::new(num_tokens, 0));
    json(Classes { id, object: "list", created, model, data, usage }, num_values).await
}
