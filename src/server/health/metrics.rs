//! `GET /metrics`: Prometheus text.

use axum::{
    extract::State,
    http::header::CONTENT_TYPE,
    response::{IntoResponse, Response},
};

use crate::server::state::AppState;

pub(in crate::server) async fn render(State(state): State<AppState>) -> Response {
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    ([(CONTENT_TYPE, kind)], state.metrics.render()).into_response()
}
