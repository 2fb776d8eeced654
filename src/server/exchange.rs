//! The facts about a request that handlers need beside its body.

use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, request::Parts},
};

use super::{
    http::{caller::Caller, error::ApiError},
    memory::RequestMemory,
    state::AppState,
};

/// The server's state, and a request without its body.
pub(in crate::server) struct Exchange {
    pub(in crate::server) state: AppState,
    pub(in crate::server) caller: Caller,
    pub(in crate::server) headers: HeaderMap,
    pub(in crate::server) memory: RequestMemory,
}

impl FromRequestParts<AppState> for Exchange {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, ApiError> {
        Ok(Self {
            caller: Caller::from_request_parts(parts, state).await?,
            memory: RequestMemory::from_request_parts(parts, state).await?,
            headers: parts.headers.clone(),
            state: state.clone(),
        })
    }
}
