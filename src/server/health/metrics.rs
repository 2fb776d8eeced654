//! `GET /metrics`: Prometheus text.

use axum::{
    extract::State,
    http::header::CONTENT_TYPE,
    response::{IntoResponse, Response},
};

use crate::server::{lora::lora_requests_info, state::AppState};

pub(in crate::server) async fn render(State(state): State<AppState>) -> Response {
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    let text = state.metrics.render() + &lora_requests_info(&state).await;
    ([(CONTENT_TYPE, kind)], text).into_response()
}
