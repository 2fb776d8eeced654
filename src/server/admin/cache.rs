//! `POST /reset_prefix_cache`, `/reset_mm_cache` and `/reset_encoder_cache`.

use axum::{Json, extract::State};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::server::{
    http::{error::ApiError, extract::QueryOf, fields::switch},
    state::AppState,
};

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ResetQuery {
    /// Preempt running requests, so that every block is free and can be forgotten.
    #[serde(deserialize_with = "switch")]
    reset_running_requests: bool,
    /// Changes nothing: there is no cache outside the process.
    #[serde(rename = "reset_external", deserialize_with = "switch")]
    _reset_external: bool,
}

/// Forgets processed images and sounds.
pub(super) async fn reset_mm_cache(State(state): State<AppState>) {
    state.engine.codec().media().into_iter().for_each(|media| media.clear());
}

/// Forgets the embeddings of images and sounds that no request needs now.
pub(super) async fn reset_encoder_cache(State(state): State<AppState>) -> Result<(), ApiError> {
    Ok(state.engine.reset_encoder_cache().await?)
}

/// `success` is false if blocks are in use and may not be preempted.
pub(super) async fn reset_prefix_cache(
    State(state): State<AppState>,
    QueryOf(query): QueryOf<ResetQuery>,
) -> Result<Json<Value>, ApiError> {
    let success = state.engine.reset_prefix_cache(query.reset_running_requests).await?;
    Ok(Json(json!({ "success": success })))
}

#[cfg(test)]
mod tests {
    use axum::extract::Query;

    use super::*;

    #[test]
    fn a_switch_is_written_as_clients_of_python_write_it() {
        let read = |query: &str| {
            let uri = format!("http://localhost/?{query}").parse().unwrap();
            let read = Query::<ResetQuery>::try_from_uri(&uri);
            read.map(|Query(query)| query.reset_running_requests).map_err(drop)
        };
        for on in ["True", "true", "1", "yes", "ON"] {
            assert_eq!(read(&format!("reset_running_requests={on}")), Ok(true), "{on}");
        }
        for off in ["reset_running_requests=False", "reset_external=1", ""] {
            assert_eq!(read(off), Ok(false), "{off}");
        }
        assert_eq!(read("reset_running_requests=maybe"), Err(()));
    }
}
