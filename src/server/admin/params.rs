//! Query parameters whose errors have the form of all others.

use axum::{
    extract::{FromRequestParts, Query},
    http::request::Parts,
};
use serde::de::DeserializeOwned;

use crate::server::{error::ApiError, state::AppState};

/// Extracts `T` from the query.
pub(super) struct Params<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequestParts<AppState> for Params<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &AppState) -> Result<Self, ApiError> {
        let query = Query::try_from_uri(&parts.uri);
        let Query(params) = query.map_err(|error| ApiError::validation("query", error))?;
        Ok(Self(params))
    }
}
