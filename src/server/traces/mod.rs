//! Traces: a span of each request, for a collector of OpenTelemetry's.
//!
//! The span has vLLM's name and attributes. Its parent is the span in the request's `traceparent`
//! and `tracestate`, if there is one. Without the feature `otlp` there is no tracer, and the
//! setting that asks for one is rejected.

#[cfg(feature = "otlp")]
mod collector;
#[cfg(feature = "otlp")]
mod span;
mod times;
#[cfg(not(feature = "otlp"))]
mod untraced;

#[cfg(feature = "otlp")]
pub(super) use span::{RequestSpan, TraceParent, Tracer};
pub(super) use times::RequestTimes;
#[cfg(not(feature = "otlp"))]
pub(super) use untraced::{RequestSpan, TraceParent, Tracer};

use super::{ServerConfig, ServerError};

/// Returns the tracer that the settings ask for. Call it within the runtime that sends the spans.
///
/// # Errors
/// If there cannot be one.
pub(super) fn tracer(config: &ServerConfig) -> Result<Option<Tracer>, ServerError> {
    config.otlp_traces_endpoint.as_deref().map(Tracer::new).transpose()
}
