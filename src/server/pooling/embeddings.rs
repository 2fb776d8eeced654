//! `POST /v1/embeddings`: a vector for each input.

use axum::response::Response;

use super::{
    answer::{Embedding, Embeddings},
    encoding::BinaryHead,
    late_chunking,
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

/// `POST /v1/embeddings`
pub(in crate::server) async fn create(
    exchange: Exchange,
    JsonBody(request): JsonBody<PoolingRequest>,
) -> Result<Response, ApiError> {
    let PoolingRequest { input, fields } = request;
    exchange.require(PoolingTask::Embed, "Embeddings API")?;
    let state = &exchange.state;
    let model = fields.model(state).await?;
    let encoding = fields.encoding()?;
    let params = fields.embed_params(state, &model)?;
    let inputs = input.inputs(&exchange, &model, true).await?;
    let is_late = fields.late_chunking.unwrap_or(false);
    let (inputs, params) = match is_late {
        true => late_chunking::join(inputs, params)?,
        false => (inputs, params),
    };
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
