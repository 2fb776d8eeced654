//! The client of a request, and the time that it is ready to wait.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, HeaderName, request::Parts},
};
use tokio::time::{Instant, timeout_at};

use super::{auth::Identity, error::ApiError, fields::Int};
use crate::api::{RawMedia, RawRequest, RequestError, Tenant};
use crate::server::state::AppState;

const X_REQUEST_TIMEOUT: HeaderName = HeaderName::from_static("x-request-timeout");
const X_VLLM_PRIORITY: HeaderName = HeaderName::from_static("x-vllm-priority");

/// The facts about its client that a request carries.
#[derive(Debug, Clone, Copy)]
pub(in crate::server) struct Caller {
    /// The tenant of its key. `None` if the server has no keys.
    pub(in crate::server) tenant: Option<Tenant>,
    /// Keeps its prefixes apart from those of other keys.
    cache_scope: Option<u64>,
    /// Time that the client, or the server for it, is ready to wait.
    pub(in crate::server) timeout: Option<Duration>,
    pub(in crate::server) deadline: Deadline,
    /// The priority of its requests, in place of the one in their bodies.
    priority: Option<i32>,
}

impl FromRequestParts<AppState> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, ApiError> {
        let timeout = timeout(&parts.headers, state.config.request_timeout_secs)?;
        let identity = parts.extensions.get::<Identity>();
        Ok(Self {
            tenant: identity.map(|identity| identity.tenant),
            cache_scope: identity.and_then(|identity| identity.cache_scope),
            timeout,
            deadline: Deadline::after(timeout),
            priority: priority(&parts.headers)?,
        })
    }
}

impl Caller {
    /// Returns the same client for a request that begins now.
    pub(in crate::server) fn anew(self) -> Self {
        Self { deadline: Deadline::after(self.timeout), ..self }
    }

    /// Returns `request` as this client's: with its tenant, its timeout, its priority, and its
    /// scope of cached prefixes. Every request that is submitted for a client goes through here.
    pub(in crate::server) fn own(&self, request: RawRequest) -> RawRequest {
        let cache_salt = match self.cache_scope {
            // A client's own salt has no slash, so no client can forge another's.
            Some(scope) => {
                Some(format!("{scope:016x}/{}", request.cache_salt.as_deref().unwrap_or_default()))
            }
            None => request.cache_salt,
        };
        let media = match self.cache_scope {
            Some(scope) => scoped(&request.media, scope),
            None => request.media,
        };
        let priority = self.priority.unwrap_or(request.priority);
        let (tenant, timeout) = (self.tenant, self.timeout);
        RawRequest { media, tenant, timeout, priority, cache_salt, ..request }
    }
}

/// Returns the items with names that no client of another scope has.
fn scoped(media: &[RawMedia], scope: u64) -> Arc<[RawMedia]> {
    let named = |item: &RawMedia| {
        let uuid = item.uuid.as_ref().map(|uuid| format!("{scope:016x}/{uuid}").into());
        RawMedia { uuid, ..item.clone() }
    };
    media.iter().map(named).collect()
}

/// The time after which the client no longer waits for an answer. The default is never.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::server) struct Deadline(Option<Instant>);

impl Deadline {
    /// Returns the deadline `timeout` from now.
    fn after(timeout: Option<Duration>) -> Self {
        // A time beyond the clock's range is never reached.
        Self(timeout.and_then(|timeout| Instant::now().checked_add(timeout)))
    }

    /// Returns the output of `work`. If that is too late, drops `work` and returns 504.
    pub(in crate::server) async fn meet<T>(
        self,
        work: impl Future<Output = T>,
    ) -> Result<T, ApiError> {
        let Self(Some(deadline)) = self else { return Ok(work.await) };
        let outcome = timeout_at(deadline, work).await;
        outcome.map_err(|_| RequestError::DeadlineExceeded.into())
    }
}

/// Returns the time that a request may take: the client's wish, but at most `limit_secs`.
fn timeout(headers: &HeaderMap, limit_secs: Option<f64>) -> Result<Option<Duration>, ApiError> {
    let Some(value) = headers.get(&X_REQUEST_TIMEOUT) else {
        return Ok(limit_secs.and_then(duration));
    };
    let asked = value.to_str().ok().and_then(|text| text.trim().parse::<f64>().ok());
    let Some(asked) = asked.filter(|seconds| *seconds > 0.0) else {
        let message = "X-Request-Timeout must be a number of seconds above 0";
        return Err(ApiError::invalid(X_REQUEST_TIMEOUT.as_str(), message));
    };
    Ok(duration(limit_secs.map_or(asked, |limit| limit.min(asked))))
}

/// Returns the priority that the header has. It goes before the field of the body, as in vLLM.
fn priority(headers: &HeaderMap) -> Result<Option<i32>, ApiError> {
    let Some(value) = headers.get(&X_VLLM_PRIORITY) else { return Ok(None) };
    let asked = value.to_str().ok().and_then(|text| text.trim().parse::<i64>().ok());
    let Some(asked) = asked else {
        let message = "X-Vllm-Priority must be an integer";
        return Err(ApiError::invalid(X_VLLM_PRIORITY.as_str(), message));
    };
    Int(asked).cast(X_VLLM_PRIORITY.as_str(), "a 32-bit integer").map(Some)
}

/// Returns `None` for more seconds than a [`Duration`] holds.
fn duration(seconds: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::api::Prompt;

    fn asked(value: &str, limit: Option<f64>) -> Result<Option<f64>, Option<String>> {
        let headers = HeaderMap::from_iter([(X_REQUEST_TIMEOUT, value.parse().unwrap())]);
        let timeout = timeout(&headers, limit).map_err(|error| error.param)?;
        Ok(timeout.map(|timeout| timeout.as_secs_f64()))
    }

    #[test]
    fn a_client_may_ask_for_less_than_the_limit() {
        assert_eq!(asked("2.5", None), Ok(Some(2.5)));
        assert_eq!(asked("2.5", Some(60.0)), Ok(Some(2.5)));
        assert_eq!(asked("600", Some(60.0)), Ok(Some(60.0)));
        assert_eq!(asked("1e300", None), Ok(None));
        assert_eq!(timeout(&HeaderMap::new(), Some(60.0)), Ok(Some(Duration::from_secs(60))));
        assert_eq!(timeout(&HeaderMap::new(), None), Ok(None));
        assert!(Deadline::after(Some(Duration::MAX)).0.is_none());
    }

    #[test]
    fn nonsense_is_refused_by_the_headers_name() {
        for value in ["", "0", "-1", "NaN", "soon", "1s"] {
            assert_eq!(asked(value, None), Err(Some("x-request-timeout".to_owned())), "{value}");
        }
    }

    /// vLLM 0.33: `_get_priority` of `GenerateBaseServing`.
    #[test]
    fn a_priority_of_the_header_goes_before_that_of_the_body() {
        let of = |value: &str| {
            let headers = HeaderMap::from_iter([(X_VLLM_PRIORITY, value.parse().unwrap())]);
            priority(&headers).map_err(|error| error.param)
        };
        assert_eq!(priority(&HeaderMap::new()), Ok(None));
        assert_eq!((of("-10"), of(" 7 "), of("0")), (Ok(Some(-10)), Ok(Some(7)), Ok(Some(0))));
        for wrong in ["", "high", "1.5", "3000000000"] {
            assert_eq!(of(wrong), Err(Some("x-vllm-priority".to_owned())), "{wrong}");
        }
        let owned = |priority| {
            let (timeout, deadline) = (None, Deadline::default());
            let caller = Caller { tenant: None, cache_scope: None, timeout, deadline, priority };
            let request = RawRequest::new(Prompt::Tokens(vec![1]));
            caller.own(RawRequest { priority: 5, ..request }).priority
        };
        assert_eq!([owned(None), owned(Some(-10)), owned(Some(0))], [5, -10, 0]);
    }

    #[test]
    fn a_scope_precedes_every_salt_of_a_client() {
        let salted = |cache_scope, salt: Option<&str>| {
            let (tenant, timeout, deadline) = (Some(Tenant(3)), None, Deadline::default());
            let caller = Caller { tenant, cache_scope, timeout, deadline, priority: None };
            let request = RawRequest::new(Prompt::Tokens(vec![1]));
            let owned = caller.own(RawRequest { cache_salt: salt.map(str::to_owned), ..request });
            assert_eq!(owned.tenant, Some(Tenant(3)));
            owned.cache_salt
        };
        assert_eq!(salted(None, None), None);
        assert_eq!(salted(None, Some("x")).as_deref(), Some("x"));
        assert_eq!(salted(Some(10), None).as_deref(), Some("000000000000000a/"));
        assert_eq!(salted(Some(10), Some("x")).as_deref(), Some("000000000000000a/x"));
    }

    #[tokio::test]
    async fn late_work_is_dropped() {
        let soon = Deadline::after(Some(Duration::from_millis(1)));
        let late = soon.meet(std::future::pending::<()>()).await.unwrap_err();
        assert_eq!(late.status, 504);
        assert_eq!(soon.meet(async { 7 }).await, Ok(7), "what is there already is given out");
        assert_eq!(Deadline::default().meet(async { 7 }).await, Ok(7));
    }
}
