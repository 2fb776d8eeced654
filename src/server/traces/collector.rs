//! Sends spans to the collector.

use std::{fmt, future::Future, pin::Pin, time::Duration};

use axum::body::{Body, to_bytes};
use opentelemetry_http::{Bytes, HttpClient as SendsBytes, HttpError, Request, Response};
use tokio::{runtime::Handle, time::timeout};

use crate::server::http::client::HttpClient;

/// Longest time for a request to the collector.
const TIME_LIMIT: Duration = Duration::from_secs(10);
/// Most bytes of the collector's answer.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// A client of the collector. OpenTelemetry's thread waits for it, and the server's runtime runs
/// it.
pub(super) struct Collector {
    pub(super) http: HttpClient<Body>,
    pub(super) runtime: Handle,
}

impl fmt::Debug for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Collector").finish_non_exhaustive()
    }
}

impl SendsBytes for Collector {
    fn send_bytes<'c, 'f>(
        &'c self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'f>>
    where
        'c: 'f,
        Self: 'f,
    {
        let sending = self.runtime.spawn(send(self.http.clone(), request));
        Box::pin(async move { sending.await? })
    }
}

async fn send(
    http: HttpClient<Body>,
    request: Request<Bytes>,
) -> Result<Response<Bytes>, HttpError> {
    let exchange = async {
        let (head, body) = http.request(request.map(Body::from)).await?.into_parts();
        let body = to_bytes(Body::new(body), ANSWER_BYTES_MAX).await?;
        Ok::<_, HttpError>(Response::from_parts(head, body))
    };
    timeout(TIME_LIMIT, exchange).await?
}
