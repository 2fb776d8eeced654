//! Routes that fetch, make or remove models. This server has the one model that it was started
//! with.

use axum::http::Uri;

use crate::server::http::error::ApiError;

/// Answers 501 with the way to do it here.
pub(super) async fn refuse(uri: Uri) -> ApiError {
    let route = uri.path().rsplit('/').next().unwrap_or_default();
    let message = match route {
        "pull" => {
            "this server serves the model that it was started with: fetch another with `playhouse \
             pull NAME` and start `playhouse serve NAME`"
        }
        "create" | "copy" => {
            "this server serves the model that it was started with, under the names of \
             --served-model-name"
        }
        "push" => "this server publishes no models",
        _ => "this server removes no models: remove the folder in Hugging Face's cache",
    };
    ApiError::not_implemented("model", message)
}
