//! A span of each request, and the tracer that makes it.

use std::{
    convert::Infallible,
    env,
    time::{Duration, SystemTime},
};

use axum::{
    extract::FromRequestParts,
    http::{HeaderMap, request::Parts},
};
use opentelemetry::{
    Context, KeyValue,
    propagation::TextMapPropagator,
    trace::{Span, SpanKind, Status, Tracer as _, TracerProvider},
};
use opentelemetry_http::HeaderExtractor;
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::{
    Resource,
    propagation::TraceContextPropagator,
    trace::{SdkTracer, SdkTracerProvider},
};
use tokio::runtime::Handle;

use super::{RequestTimes, collector::Collector};
use crate::{
    api::RawRequest,
    server::{ServerError, http::client::http_client, state::AppState},
};

/// vLLM's name of the span.
const SPAN: &str = "llm_request";
/// The name of the service, unless OpenTelemetry's variables give one.
const SERVICE: &str = "playhouse";
/// Time in which the last spans must be sent.
const FLUSH_LIMIT: Duration = Duration::from_secs(5);

/// Makes spans, and sends them to the collector in batches. Cheap to clone.
#[derive(Clone)]
pub(in crate::server) struct Tracer {
    provider: SdkTracerProvider,
    tracer: SdkTracer,
}

impl Tracer {
    /// Returns a tracer for the collector at `endpoint`. The current runtime sends the spans.
    pub(super) fn new(endpoint: &str) -> Result<Self, ServerError> {
        let refused =
            |reason: String| ServerError::Traces { endpoint: endpoint.to_owned(), reason };
        let runtime = Handle::try_current().map_err(|error| refused(error.to_string()))?;
        let http = http_client(endpoint).map_err(|error| refused(error.to_string()))?;
        let exporter = SpanExporter::builder()
            .with_http()
            .with_protocol(Protocol::HttpBinary)
            .with_http_client(Collector { http, runtime })
            .with_endpoint(endpoint)
            .build()
            .map_err(|error| refused(error.to_string()))?;
        let names = ["OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES"];
        let resource = match names.iter().any(|name| env::var_os(name).is_some()) {
            true => Resource::builder(),
            false => Resource::builder().with_service_name(SERVICE),
        };
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter)
            .with_resource(resource.build())
            .build();
        let tracer = provider.tracer(SERVICE);
        Ok(Self { provider, tracer })
    }

    /// Sends the spans that were not sent yet. No span is sent after that.
    pub(in crate::server) async fn shutdown(self) {
        let flushed = move || self.provider.shutdown_with_timeout(FLUSH_LIMIT);
        match tokio::task::spawn_blocking(flushed).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the last spans were not sent"),
            Err(error) => tracing::warn!(%error, "the last spans were not sent"),
        }
    }
}

/// The span of the client that a request names in its headers.
#[derive(Clone)]
pub(in crate::server) struct TraceParent(Context);

impl TraceParent {
    /// Reads `traceparent` and `tracestate`, which the W3C defines. Malformed ones count as absent.
    pub(in crate::server) fn of(headers: &HeaderMap) -> Self {
        let headers = HeaderExtractor(headers);
        Self(TraceContextPropagator::new().extract_with_context(&Context::new(), &headers))
    }
}

impl<S: Sync> FromRequestParts<S> for TraceParent {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self::of(&parts.headers))
    }
}

/// Returns the number that the client wrote: 0.7 has more digits as a float of 32 bits.
fn decimal(value: f32) -> f64 {
    value.to_string().parse().unwrap_or(f64::from(value))
}

/// The span of a request that has not ended.
pub(in crate::server) struct RequestSpan {
    tracer: SdkTracer,
    parent: TraceParent,
    attributes: Vec<KeyValue>,
    times: RequestTimes,
}

impl RequestSpan {
    /// Returns the span of the answer `id` of `model` to `requests`, which all have the same
    /// parameters. `None` if the server has no tracer.
    pub(in crate::server) fn new(
        state: &AppState,
        parent: TraceParent,
        id: &str,
        model: &str,
        requests: &[RawRequest],
    ) -> Option<Self> {
        let tracer = state.tracer.as_ref()?.tracer.clone();
        let mut attributes = vec![
            KeyValue::new("gen_ai.request.id", id.to_owned()),
            KeyValue::new("gen_ai.response.model", model.to_owned()),
        ];
        if let Some(request) = requests.first().filter(|request| request.pooling.is_none()) {
            let params = &request.params;
            attributes.extend([
                KeyValue::new("gen_ai.request.temperature", decimal(params.temperature)),
                KeyValue::new("gen_ai.request.top_p", decimal(params.top_p)),
                KeyValue::new("gen_ai.request.n", i64::from(params.n)),
            ]);
            let max_tokens = request.max_tokens.or(request.max_tokens_default);
            attributes.extend(max_tokens.map(|max_tokens| {
                KeyValue::new("gen_ai.request.max_tokens", i64::from(max_tokens))
            }));
        }
        Some(Self { tracer, parent, attributes, times: RequestTimes::default() })
    }

    /// Records the current times.
    pub(in crate::server) fn note(&mut self, times: RequestTimes) {
        self.times = times;
    }

    /// Ends the span of a request that took `elapsed` until now.
    pub(in crate::server) fn end(
        self,
        elapsed: Duration,
        prompt_tokens: usize,
        output_tokens: usize,
        has_failed: bool,
    ) {
        let Self { tracer, parent, mut attributes, times } = self;
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        attributes.extend([
            KeyValue::new("gen_ai.usage.prompt_tokens", count(prompt_tokens)),
            KeyValue::new("gen_ai.usage.completion_tokens", count(output_tokens)),
            KeyValue::new("gen_ai.latency.e2e", elapsed.as_secs_f64()),
        ]);
        attributes.extend(times.attributes().map(|(name, time)| KeyValue::new(name, time)));
        let end = SystemTime::now();
        let start = end.checked_sub(elapsed).unwrap_or(end);
        let span = tracer.span_builder(SPAN).with_kind(SpanKind::Server).with_start_time(start);
        let mut span = span.with_attributes(attributes).start_with_context(&tracer, &parent.0);
        if has_failed {
            span.set_status(Status::error("the request failed"));
        }
        span.end_with_timestamp(end);
    }
}
