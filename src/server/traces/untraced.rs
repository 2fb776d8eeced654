//! A build without traces.

use std::{convert::Infallible, time::Duration};

use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, request::Parts},
};

use super::RequestTimes;
use crate::{
    api::RawRequest,
    server::{ServerError, state::AppState},
};

/// There is no tracer.
#[derive(Clone)]
pub(in crate::server) enum Tracer {}

impl Tracer {
    pub(super) fn new(endpoint: &str) -> Result<Self, ServerError> {
        let reason = "this build has no feature `otlp`".to_owned();
        Err(ServerError::Traces { endpoint: endpoint.to_owned(), reason })
    }

    pub(in crate::server) async fn shutdown(self) {
        match self {}
    }
}

/// The headers are not read.
#[derive(Clone)]
pub(in crate::server) struct TraceParent;

impl TraceParent {
    pub(in crate::server) fn of(_: &HeaderMap) -> Self {
        Self
    }
}

impl<S: Sync> FromRequestParts<S> for TraceParent {
    type Rejection = Infallible;

    async fn from_request_parts(_: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self)
    }
}

/// There is no span.
pub(in crate::server) enum RequestSpan {}

impl RequestSpan {
    pub(in crate::server) fn new(
        _: &AppState,
        _: TraceParent,
        _: &str,
        _: &str,
        _: &[RawRequest],
    ) -> Option<Self> {
        None
    }

    pub(in crate::server) fn note(&mut self, _: RequestTimes) {
        match *self {}
    }

    pub(in crate::server) fn end(self, _: Duration, _: usize, _: usize, _: bool) {
        match self {}
    }
}
