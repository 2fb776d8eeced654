//! From a line to its answer.

use std::{collections::BTreeSet, time::Duration};

use parking_lot::Mutex;
use serde_json::Value;
use uuid::Uuid;

use super::{
    answers::{Answer, AnswerError, AnswerResponse, ID_PREFIX},
    request::{Abilities, Line, Request},
};
use crate::server::{InProcess, InProcessAnswer};

/// Most retries of a request that the engine has no room for at present.
const RETRIES: usize = 60;
const SERVICE_UNAVAILABLE: u16 = 503;

/// The code of a line that is no request.
const INVALID: &str = "invalid_request";

/// Sends requests.
pub(super) struct Worker {
    routes: InProcess,
    abilities: Abilities,
    /// Names of requests so far, which identify answers.
    seen: Mutex<BTreeSet<String>>,
}

impl Worker {
    pub(super) fn new(routes: InProcess, abilities: Abilities) -> Self {
        Self { routes, abilities, seen: Mutex::default() }
    }

    /// Returns the answer to a line, also to an invalid one.
    pub(super) async fn answer(&self, line: Line) -> Answer {
        let Line { number, custom_id, request } = line;
        let is_new = custom_id.as_ref().is_none_or(|id| self.seen.lock().insert(id.clone()));
        let lack = request.as_ref().ok().and_then(|request| self.abilities.lack(request.url));
        let answered = match (request, lack) {
            (Ok(_), _) if !is_new => {
                Err((INVALID, "custom_id was used by a line before".to_owned()))
            }
            (Ok(_), Some(lack)) => Err(("NotImplementedError", lack)),
            (Ok(request), None) => Ok(self.send(request).await),
            (Err(error), _) => Err((INVALID, error)),
        };
        let (response, error) = match answered {
            Ok(answer) => response(number, answer),
            Err((code, message)) => {
                (None, Some(AnswerError { code: code.to_owned(), message, line: number }))
            }
        };
        let id = format!("{ID_PREFIX}{}", Uuid::new_v4().simple());
        Answer { id, custom_id, response, error }
    }

    async fn send(&self, request: Request) -> InProcessAnswer {
        let mut retries = 0;
        loop {
            let answer = self.routes.post(request.url, request.body.clone()).await;
            if answer.status != SERVICE_UNAVAILABLE || retries == RETRIES {
                return answer;
            }
            retries += 1;
            tokio::time::sleep(answer.retry_after.unwrap_or(Duration::from_secs(1))).await;
        }
    }
}

fn response(line: u64, answer: InProcessAnswer) -> (Option<AnswerResponse>, Option<AnswerError>) {
    let InProcessAnswer { status, body, .. } = answer;
    let text = || Value::String(String::from_utf8_lossy(&body).into_owned());
    let body: Value = serde_json::from_slice(&body).unwrap_or_else(|_| text());
    let error = (status >= 400).then(|| {
        let told = |key: &str| body["error"][key].as_str().map(str::to_owned);
        let message = told("message").unwrap_or_else(|| format!("status {status}"));
        AnswerError { code: told("type").unwrap_or_default(), message, line }
    });
    let request_id = match body["id"].as_str() {
        Some(id) => id.to_owned(),
        None => format!("req_{}", Uuid::new_v4().simple()),
    };
    (Some(AnswerResponse { status_code: status, request_id, body }), error)
}
