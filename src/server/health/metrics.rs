//! `GET /metrics`: Prometheus text.

use axum::{
    extract::State,
    http::header::CONTENT_TYPE,
    response::{IntoResponse, Response},
};

use super::encoder_metrics::encoder_cache_lines;
use crate::server::{lora::lora_requests_info, state::AppState};

pub(in crate::server) async fn render(State(state): State<AppState>) -> Response {
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    let (adapters, encoder_cache) =
        tokio::join!(lora_requests_info(&state), encoder_cache_lines(&state));
    let text = state.metrics.render() + &adapters + &encoder_cache;
    ([(CONTENT_TYPE, kind)], text).into_response()
}
