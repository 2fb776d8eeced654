//! Probes: whether the server lives, works, and takes more work.

use std::borrow::Cow;

use axum::{
    Json,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};

use crate::{
    api::{EngineProcessView, Health},
    server::state::AppState,
};

/// Returns the word for a state of the engine.
pub(in crate::server) fn status(health: Health) -> &'static str {
    report(health).status
}

/// The answers of the probes in one state of the engine.
struct Report {
    status: &'static str,
    reason: Option<Cow<'static, str>>,
    /// `/health`: accepted requests run.
    serves: bool,
    /// `/readyz`: new requests are accepted.
    is_ready: bool,
    /// `/livez`: the server may recover without a restart.
    lives: bool,
}

fn report(health: Health) -> Report {
    let reason = match health {
        Health::Unhealthy(reason) => Some(reason.as_str().into()),
        _ => None,
    };
    let (status, serves, is_ready, lives) = match health {
        Health::Starting => ("starting", false, false, true),
        Health::Recovering => ("recovering", false, false, true),
        // A probe reports when it has recovered.
        Health::Unhealthy(_) => ("unhealthy", false, false, true),
        Health::Ready => ("ready", true, true, true),
        Health::Draining => ("draining", true, false, true),
        Health::Dead => ("dead", false, false, false),
    };
    Report { status, reason, serves, is_ready, lives }
}

/// Returns the report of a runtime with frozen threads. `is_lost` says whether they will not
/// recover.
fn frozen_report(is_lost: bool) -> Report {
    Report { status: "frozen", reason: None, serves: false, is_ready: false, lives: !is_lost }
}

/// Returns the report of an engine whose journal cannot be written. `refuses` says whether it
/// accepts no requests without it.
fn journal_report(refuses: bool) -> Report {
    let is_ready = !refuses;
    Report { status: "journal_degraded", reason: None, serves: true, is_ready, lives: true }
}

fn report_of(state: &AppState) -> Report {
    match state.engine.health() {
        Health::Dead => report(Health::Dead),
        Health::Ready if state.engine.journal().is_some_and(|journal| journal.is_degraded()) => {
            let refuses = state.engine.journal().is_some_and(|journal| journal.refuses());
            journal_report(refuses)
        }
        health if state.pulse.freeze().is_none() => {
            let report = report(health);
            let is_recovering = health == Health::Recovering;
            let process = state.engine.engine_process().filter(|_| is_recovering);
            let reason = process.and_then(|process| lost_process(&process));
            let why = || state.engine.breaker_reason().filter(|_| is_recovering);
            let reason = reason.or_else(|| why().map(Cow::from));
            Report { reason: report.reason.or(reason), ..report }
        }
        _ => frozen_report(state.pulse.is_lost()),
    }
}

/// Returns how the last engine process ended, if the next one is not there yet.
fn lost_process(process: &EngineProcessView) -> Option<Cow<'static, str>> {
    let end = process.ends.last().filter(|_| process.pid.is_none())?;
    Some(format!("the engine process {end}").into())
}

/// `GET /health`, `/ping`: 200 as long as the engine works on accepted requests.
pub(in crate::server) async fn health(State(state): State<AppState>) -> Response {
    let report = report_of(&state);
    report.answer(report.serves)
}

/// `GET /health`, `/ping`, `/readyz` while the runtime is frozen.
pub(in crate::server) async fn frozen() -> Response {
    frozen_report(true).answer(false)
}

/// `GET /livez` while the runtime is frozen.
pub(in crate::server) async fn frozen_livez(State(state): State<AppState>) -> Response {
    let report = frozen_report(state.pulse.is_lost());
    report.answer(report.lives)
}

/// `GET /readyz`: 200 as long as new requests are accepted.
pub(in crate::server) async fn readyz(State(state): State<AppState>) -> Response {
    let report = report_of(&state);
    report.answer(report.is_ready)
}

/// `GET /livez`: 200 until the supervisors give up, or threads are stuck and will not recover.
pub(in crate::server) async fn livez(State(state): State<AppState>) -> Response {
    let report = report_of(&state);
    report.answer(report.lives)
}

impl Report {
    /// Answers as vLLM does: 200 has no body. 503 has the reason as its body.
    fn answer(&self, good: bool) -> Response {
        if good {
            return StatusCode::OK.into_response();
        }
        let body = match &self.reason {
            Some(reason) => json!({ "status": self.status, "reason": reason }),
            None => json!({ "status": self.status }),
        };
        let body = Json(body);
        (StatusCode::SERVICE_UNAVAILABLE, body).into_response()
    }
}

/// `GET /version`
pub(in crate::server) async fn version() -> Json<Value> {
    Json(json!({"version": env!("CARGO_PKG_VERSION")}))
}

/// `GET /load`: requests that have not ended.
pub(in crate::server) async fn load(State(state): State<AppState>) -> Json<Value> {
    Json(json!({"server_load": state.engine.open_requests()}))
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::api::Unhealthy;

    #[tokio::test]
    async fn each_state_answers_with_its_name() {
        // The answers of `/health`, `/readyz` and `/livez`.
        let cases = [
            (Health::Starting, "starting", [503, 503, 200]),
            (Health::Recovering, "recovering", [503, 503, 200]),
            (Health::Ready, "ready", [200, 200, 200]),
            (Health::Draining, "draining", [200, 503, 200]),
            (Health::Unhealthy(Unhealthy::NonFiniteLogits), "unhealthy", [503, 503, 200]),
            (Health::Dead, "dead", [503, 503, 503]),
        ];
        for (health, status, expected) in cases {
            let report = report(health);
            let routes = [report.serves, report.is_ready, report.lives];
            for (good, code) in routes.into_iter().zip(expected) {
                let answer = report.answer(good);
                assert_eq!(answer.status(), code, "{status}");
                let body = axum::body::to_bytes(answer.into_body(), 100).await.unwrap();
                let told = match &report.reason {
                    Some(reason) => format!(r#"{{"status":"{status}","reason":"{reason}"}}"#),
                    None => format!(r#"{{"status":"{status}"}}"#),
                };
                assert_eq!(body, if good { "" } else { told.as_str() }, "{status}");
            }
        }
    }
}
