//! One line in the log and one span for each request, for every kind of end.

use std::time::Instant;

use super::choices::Choices;
use crate::{api::Tenant, server::traces::RequestSpan};

/// The log line of a request. It is written on drop, when the response is complete or its client
/// has left.
pub(in crate::server) struct RequestLog {
    id: String,
    route: &'static str,
    tenant: Option<Tenant>,
    started: Instant,
    prompt_tokens: usize,
    output_tokens: usize,
    outcome: &'static str,
    span: Option<RequestSpan>,
}

impl RequestLog {
    pub(in crate::server) fn new(id: String, route: &'static str, tenant: Option<Tenant>) -> Self {
        let started = Instant::now();
        let (prompt_tokens, output_tokens) = (0, 0);
        Self {
            id,
            route,
            tenant,
            started,
            prompt_tokens,
            output_tokens,
            outcome: "client left",
            span: None,
        }
    }

    /// Sets the span that ends with the request, if there is a tracer. A refused request has none.
    pub(in crate::server) fn trace(&mut self, span: Option<RequestSpan>) {
        self.span = span;
    }

    /// Records the current counts.
    pub(in crate::server) fn count(&mut self, choices: &Choices) {
        self.prompt_tokens = choices.num_prompt_tokens();
        self.output_tokens = choices.num_output_tokens();
        if let Some(span) = &mut self.span {
            span.note(choices.times());
        }
    }

    /// Records the prompts of a pooling request.
    pub(in crate::server) fn pooled(&mut self, prompt_tokens: usize) {
        self.prompt_tokens = prompt_tokens;
    }

    /// Records the outcome. Without a call, the client left.
    pub(in crate::server) fn end(&mut self, outcome: &'static str) {
        self.outcome = outcome;
    }
}

impl Drop for RequestLog {
    fn drop(&mut self) {
        let Self { id, route, tenant, prompt_tokens, output_tokens, outcome, .. } = self;
        let (elapsed, tenant) = (self.started.elapsed(), tenant.map(|tenant| tenant.0));
        if let Some(span) = self.span.take() {
            span.end(elapsed, *prompt_tokens, *output_tokens, *outcome == "failed");
        }
        let elapsed_ms = elapsed.as_millis() as u64;
        // A client's own name for it may hold any character.
        let id = id.escape_debug();
        tracing::info!(
            %id, %route, tenant, %outcome, prompt_tokens, output_tokens, elapsed_ms, "request ended"
        );
    }
}
