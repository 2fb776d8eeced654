//! One request to an OpenAI-compatible server, streamed, with the arrival times of its pieces.

use std::{sync::Arc, time::Instant};

use axum::body::Body;
use futures_util::StreamExt as _;
use hyper::{Method, StatusCode, body::Incoming, header::HeaderMap};
use serde_json::{Map, Value, json};

use super::{Backend, datasets::SampleRequest, metrics::RequestOutput};
use crate::cli::{
    CliError,
    http::{ERROR_CHARS_MAX, Http, error_of, whole_text},
    sse::EventParser,
};

/// The address of a server, and the common parts of all requests to it. Clones share connections.
#[derive(Debug, Clone)]
pub(in crate::cli::bench) struct Client {
    http: Http,
    target: Arc<Target>,
}

/// The target of requests, and their common parts.
#[derive(Debug)]
pub(in crate::cli::bench) struct Target {
    pub(in crate::cli::bench) base_url: String,
    pub(in crate::cli::bench) endpoint: String,
    pub(in crate::cli::bench) backend: Backend,
    pub(in crate::cli::bench) headers: HeaderMap,
    /// Fields of every request. They override those that are made for it.
    pub(in crate::cli::bench) body: Map<String, Value>,
    pub(in crate::cli::bench) model: String,
}

impl Client {
    /// Returns a client, which connects at its first request.
    pub(in crate::cli::bench) fn new(target: Target) -> Result<Self, CliError> {
        let http = Http::new(&target.base_url, target.headers.clone())?;
        Ok(Self { http, target: Arc::new(target) })
    }

    /// Returns the same client for a model of this name.
    pub(in crate::cli::bench) fn for_model(self, model: String) -> Self {
        let Target { base_url, endpoint, backend, headers, body, .. } = &*self.target;
        let target = Target {
            model,
            backend: *backend,
            base_url: base_url.clone(),
            endpoint: endpoint.clone(),
            headers: headers.clone(),
            body: body.clone(),
        };
        Self { target: Arc::new(target), ..self }
    }

    /// Returns whether the server is healthy.
    pub(in crate::cli::bench) async fn is_healthy(&self) -> bool {
        let answer = self.http.send(Method::GET, "/health", String::new()).await;
        answer.is_ok_and(|response| response.status() == StatusCode::OK)
    }

    /// Returns the id of the server's first model, and the path that the server loaded it from.
    pub(in crate::cli::bench) async fn first_model(
        &self,
    ) -> Result<(String, Option<String>), String> {
        let response = self.http.send(Method::GET, "/v1/models", String::new()).await?;
        let status = response.status();
        let text = whole_text(response).await;
        if status != StatusCode::OK {
            return Err(error_of(status, &text));
        }
        let models: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        let model = &models["data"][0];
        let id = model["id"].as_str().ok_or("/v1/models names no model")?;
        Ok((id.to_owned(), model["root"].as_str().map(str::to_owned)))
    }

    /// Returns the server's metrics. Returns `None` if it has none, or if they need another key.
    pub(super) async fn metrics(&self) -> Option<String> {
        let response = self.http.send(Method::GET, "/metrics", String::new()).await.ok()?;
        let is_ok = response.status() == StatusCode::OK;
        let text = whole_text(response).await;
        is_ok.then_some(text)
    }

    /// Requests a stream and reads it to its end. `begun` is the benchmark's start.
    pub(in crate::cli::bench) async fn generate(
        &self,
        request: &SampleRequest,
        begun: Instant,
    ) -> RequestOutput {
        let body = self.target.payload(request).to_string();
        let mut stream = Stream::begin(begun, request.prompt_len);
        let outcome = match self.http.send(Method::POST, &self.target.endpoint, body).await {
            Err(error) => Err(error),
            Ok(response) if response.status() != StatusCode::OK => {
                let status = response.status();
                Err(error_of(status, &whole_text(response).await))
            }
            Ok(response) => stream.read(response).await,
        };
        stream.finish(outcome)
    }
}

impl Target {
    fn payload(&self, request: &SampleRequest) -> Value {
        let mut payload = match self.backend {
            Backend::Openai => json!({
                "prompt": request.prompt,
                "max_tokens": request.output_len,
            }),
            Backend::OpenaiChat => json!({
                "messages": [{"role": "user", "content": request.prompt}],
                "max_completion_tokens": request.output_len,
            }),
        };
        payload["model"] = self.model.clone().into();
        payload["stream"] = true.into();
        payload["stream_options"] = json!({"include_usage": true});
        if let Some(fields) = payload.as_object_mut() {
            fields.extend(self.body.clone());
        }
        payload
    }
}

/// A stream that is being read.
struct Stream {
    sent: Instant,
    last: Instant,
    has_begun: bool,
    output: RequestOutput,
}

impl Stream {
    fn begin(begun: Instant, prompt_len: usize) -> Self {
        let sent = Instant::now();
        let start_time = sent.duration_since(begun).as_secs_f64();
        let output = RequestOutput { start_time, prompt_len, ..RequestOutput::default() };
        Self { sent, last: sent, has_begun: false, output }
    }

    async fn read(&mut self, response: hyper::Response<Incoming>) -> Result<(), String> {
        let mut parser = EventParser::default();
        let mut pieces = Body::new(response.into_body()).into_data_stream();
        while let Some(piece) = pieces.next().await {
            let piece = piece.map_err(|error| error.to_string())?;
            let at = Instant::now();
            for event in parser.push(&piece).map_err(|error| error.to_string())? {
                if event != b"[DONE]" {
                    self.take(&event, at)?;
                }
            }
        }
        Ok(())
    }

    /// Takes a piece of output, the usage, or an error in the middle of a stream. As in vLLM's
    /// client, every event with a choice counts as a piece, whether it has text or not.
    fn take(&mut self, event: &[u8], at: Instant) -> Result<(), String> {
        let event: Value = serde_json::from_slice(event).map_err(|error| error.to_string())?;
        if let Some(error) = event.get("error").filter(|error| !error.is_null()) {
            let message =
                error["message"].as_str().map_or_else(|| error.to_string(), str::to_owned);
            return Err(message.chars().take(ERROR_CHARS_MAX).collect());
        }
        let choice = &event["choices"][0];
        if !choice.is_null() {
            let text = choice["text"].as_str().or_else(|| choice["delta"]["content"].as_str());
            self.output.generated_text.push_str(text.unwrap_or_default());
            if self.has_begun {
                self.output.itl.push(at.duration_since(self.last).as_secs_f64());
            } else {
                self.has_begun = true;
                self.output.ttft = at.duration_since(self.sent).as_secs_f64();
            }
            self.last = at;
        }
        let usage = |name: &str| event["usage"][name].as_u64().map(|count| count as usize);
        self.output.output_tokens = usage("completion_tokens").unwrap_or(self.output.output_tokens);
        self.output.prompt_len = usage("prompt_tokens").unwrap_or(self.output.prompt_len);
        Ok(())
    }

    fn finish(self, outcome: Result<(), String>) -> RequestOutput {
        let nothing = || (!self.has_begun).then(|| "the stream ended without output".to_owned());
        let error = outcome.err().or_else(nothing);
        let latency = self.last.duration_since(self.sent).as_secs_f64();
        RequestOutput { error, latency, ..self.output }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn read(events: &[(u64, Value)]) -> (Result<(), String>, RequestOutput) {
        let mut stream = Stream::begin(Instant::now(), 5);
        let sent = stream.sent;
        let mut outcome = Ok(());
        for (ms, event) in events {
            let at = sent + Duration::from_millis(*ms);
            outcome = outcome.and_then(|()| stream.take(event.to_string().as_bytes(), at));
        }
        (outcome.clone(), stream.finish(outcome))
    }

    #[test]
    fn pieces_have_times_and_the_servers_usage_counts() {
        let (_, output) = read(&[
            (10, json!({"choices": [{"text": "a"}]})),
            (30, json!({"choices": [{"text": ""}], "usage": null})),
            (35, json!({"choices": [{"text": "b"}]})),
            (90, json!({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 4}})),
        ]);
        assert_eq!((output.prompt_len, output.output_tokens), (7, 4));
        assert_eq!(output.generated_text, "ab");
        assert_eq!((output.ttft, output.itl.as_slice()), (0.01, &[0.02, 0.005][..]));
        assert_eq!((output.latency, output.error), (0.035, None));
    }

    #[test]
    fn chats_have_deltas_and_errors_end_a_stream() {
        let (outcome, output) = read(&[
            (5, json!({"choices": [{"delta": {"role": "assistant", "content": "x"}}]})),
            (9, json!({"error": {"message": "no more", "code": 500}})),
        ]);
        assert_eq!(outcome, Err("no more".to_owned()));
        assert_eq!(
            (output.generated_text.as_str(), output.error.as_deref()),
            ("x", Some("no more"))
        );
        let (_, output) = read(&[]);
        assert_eq!(output.error.as_deref(), Some("the stream ended without output"));
    }
}
