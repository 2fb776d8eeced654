//! Pooling over HTTP: vectors, classes and scores of prompts, with vLLM's routes. A server has the
//! routes of its model's task alone, as in vLLM.
//!
//! [`fields`] are the fields that the routes share, and [`input`] turns a body's input into
//! prompts. [`run`] pools them within the request's lease of memory. [`encoding`] writes numbers as
//! text or bytes.

mod answer;
mod classify;
mod embed;
mod embeddings;
mod encoding;
mod fields;
mod input;
mod invoke;
mod items;
mod late_chunking;
mod pair_variables;
mod pool;
mod request;
mod rerank;
mod run;
mod score;
mod side_limits;

use axum::{Router, routing::post};

pub(in crate::server) use self::{
    answer::{Classes, Embeddings, Poolings, Ranking, Scores},
    embed::{EmbedRequest, Embedded},
    fields::PoolingFields,
    input::Inputs,
    invoke::{PoolingInvocation, respond as respond_to_invocation},
    request::PoolingRequest,
    rerank::RerankRequest,
    run::{Results, json},
    score::ScoreRequest,
};
use super::state::AppState;
use crate::api::PoolingTask;

/// Returns the routes that the model's task has.
pub(in crate::server) fn routes(state: &AppState) -> Router<AppState> {
    if state.engine.pooling_task().is_none() {
        return Router::new();
    }
    let heads = &state.engine.model_info().heads;
    let router = Router::new().route("/pooling", post(pool::pool));
    // A model that also generates has one route for all invocations.
    let router = match heads.generates {
        true => router,
        false => router.route("/invocations", post(invoke::invoke)),
    };
    let router = match heads.pooling(PoolingTask::Embed) {
        Some(_) => router
            .route("/v1/embeddings", post(embeddings::create))
            .route("/v2/embed", post(embed::embed)),
        None => router,
    };
    let router = match heads.pooling(PoolingTask::Classify) {
        Some(_) => router.route("/classify", post(classify::classify)),
        None => router,
    };
    match state.engine.compares() {
        true => router
            .route("/score", post(score::score))
            .route("/v1/score", post(score::score))
            .route("/rerank", post(rerank::rerank))
            .route("/v1/rerank", post(rerank::rerank))
            .route("/v2/rerank", post(rerank::rerank)),
        false => router,
    }
}
