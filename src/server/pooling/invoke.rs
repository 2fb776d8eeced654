//! `POST /invocations` of a model that pools: the body's fields and the model's task select the
//! route, in vLLM's order.

use axum::response::{IntoResponse, Response};
use serde::{Deserialize, de::IgnoredAny};

use super::{
    PoolingRequest, RerankRequest, ScoreRequest, classify, embeddings, pool, rerank, score,
};
use crate::{
    api::PoolingTask,
    config::LimitSettings,
    server::{
        exchange::Exchange,
        http::{
            error::ApiError,
            extract::{JsonBody, JsonRequest, parse_object},
        },
    },
};

/// A body of one of the routes.
pub(in crate::server) enum PoolingInvocation {
    /// Inputs, which the task of the model gives a route.
    Inputs(Box<PoolingRequest>),
    Rerank(Box<RerankRequest>),
    Score(Box<ScoreRequest>),
}

/// The fields that distinguish the routes.
#[derive(Deserialize)]
struct PoolingShape {
    input: Option<IgnoredAny>,
    messages: Option<IgnoredAny>,
    query: Option<IgnoredAny>,
    text_1: Option<IgnoredAny>,
    queries: Option<IgnoredAny>,
    data_1: Option<IgnoredAny>,
}

impl PoolingInvocation {
    /// Reads the body of the route that its fields select. Returns `None` if they select none.
    pub(in crate::server) fn read(text: &str) -> Result<Option<Self>, ApiError> {
        let shape: PoolingShape = parse_object(text)?;
        let is_score = shape.text_1.is_some() || shape.queries.is_some() || shape.data_1.is_some();
        Ok(Some(if shape.input.is_some() || shape.messages.is_some() {
            Self::Inputs(Box::new(JsonRequest::from_json(text)?))
        } else if shape.query.is_some() {
            Self::Rerank(Box::new(JsonRequest::from_json(text)?))
        } else if is_score {
            Self::Score(Box::new(JsonRequest::from_json(text)?))
        } else {
            return Ok(None);
        }))
    }
}

impl JsonRequest for PoolingInvocation {
    fn from_json(text: &str) -> Result<Self, ApiError> {
        Self::read(text)?.ok_or_else(|| {
            ApiError::bad_request(
                "Cannot find suitable handler for request: give `input` or `messages`, `query` \
                 and `documents` for /rerank, or `text_1` and `text_2` for /score",
            )
        })
    }

    fn fields(&self) -> Vec<&'static str> {
        match self {
            Self::Inputs(request) => request.fields(),
            Self::Rerank(request) => request.fields(),
            Self::Score(request) => request.fields(),
        }
    }

    fn check_limits(&self, limits: &LimitSettings) -> Result<(), ApiError> {
        match self {
            Self::Inputs(request) => JsonRequest::check_limits(&**request, limits),
            Self::Rerank(request) => JsonRequest::check_limits(&**request, limits),
            Self::Score(request) => JsonRequest::check_limits(&**request, limits),
        }
    }
}

/// `POST /invocations`
pub(in crate::server) async fn invoke(
    exchange: Exchange,
    JsonBody(request): JsonBody<PoolingInvocation>,
) -> Result<Response, ApiError> {
    respond(exchange, request).await
}

/// Answers as the selected route does.
pub(in crate::server) async fn respond(
    exchange: Exchange,
    request: PoolingInvocation,
) -> Result<Response, ApiError> {
    let compares = exchange.state.engine.compares();
    match request {
        PoolingInvocation::Inputs(request) => {
            let body = JsonBody(*request);
            match exchange.state.engine.pooling_task() {
                Some(PoolingTask::Embed) => embeddings::create(exchange, body).await,
                Some(PoolingTask::Classify) => classify::classify(exchange, body).await,
                _ => pool::pool(exchange, body).await,
            }
        }
        PoolingInvocation::Rerank(request) if compares => {
            let ranking = rerank::rerank(exchange, JsonBody(*request)).await?;
            Ok(ranking.into_response())
        }
        PoolingInvocation::Score(request) if compares => {
            score::score(exchange, JsonBody(*request)).await
        }
        PoolingInvocation::Rerank(_) | PoolingInvocation::Score(_) => {
            Err(ApiError::bad_request("The model does not support Scores API"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_select_the_route() {
        let read = |text| match PoolingInvocation::read(text).unwrap() {
            Some(PoolingInvocation::Inputs(_)) => "inputs",
            Some(PoolingInvocation::Rerank(_)) => "rerank",
            Some(PoolingInvocation::Score(_)) => "score",
            None => "none",
        };
        assert_eq!(read(r#"{"input": "a"}"#), "inputs");
        assert_eq!(read(r#"{"messages": []}"#), "inputs");
        assert_eq!(read(r#"{"query": "a", "documents": ["b"]}"#), "rerank");
        assert_eq!(read(r#"{"text_1": "a", "text_2": "b"}"#), "score");
        assert_eq!(read(r#"{"queries": "a", "documents": "b"}"#), "score");
        assert_eq!(read(r#"{"nothing": 1}"#), "none");
        assert!(PoolingInvocation::from_json("{}").is_err());
    }
}
