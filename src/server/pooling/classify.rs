//! `POST /classify`: the class of each input.

use axum::{extract::State, http::HeaderMap, response::Response};

use super::{
    answer::{Class, Classes},
    fields::PoolingFields,
    input::InputFields,
    run::{Exchange, Results, json},
};
use crate::{
    api::PoolingTask,
    config::LimitSettings,
    server::{
        generate::usage::Usage,
        http::{caller::Caller, error::ApiError, extract::JsonBody, parts::FromParts},
        memory::RequestMemory,
        state::AppState,
    },
};

/// The body of `POST /classify`.
pub(in crate::server) struct ClassifyRequest {
    pub(super) input: InputFields,
    pub(super) fields: PoolingFields,
}

impl FromParts for ClassifyRequest {
    type Parts = (InputFields, PoolingFields);

    fn from_parts((input, fields): Self::Parts) -> Result<Self, ApiError> {
        Ok(Self { input, fields })
    }

    fn check_limits(&self, limits: &LimitSettings) -> Result<(), ApiError> {
        self.input.check_limits(limits)
    }
}

/// `POST /classify`
pub(in crate::server) async fn classify(
    State(state): State<AppState>,
    caller: Caller,
    headers: HeaderMap,
    memory: RequestMemory,
    JsonBody(request): JsonBody<ClassifyRequest>,
) -> Result<Response, ApiError> {
    let ClassifyRequest { input, fields } = request;
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
