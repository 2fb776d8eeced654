//! One request to an OpenAI-compatible server, streamed, with the arrival times of its pieces.

use std::{error::Error as _, io, sync::Arc, time::Instant};

use axum::body::Body;
use futures_util::StreamExt as _;
use hyper::{
    Method, Request, StatusCode, Uri,
    body::Incoming,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue},
};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client as HttpClient, Error as HttpError, connect::HttpConnector},
    rt::TokioExecutor,
};
use rustls::{ClientConfig, RootCertStore, crypto::ring};
use serde_json::{Map, Value, json};

use super::{Backend, datasets::SampleRequest, metrics::RequestOutput, sse::EventParser};
use crate::cli::CliError;

/// Most characters of an error's text that are shown.
const ERROR_CHARS_MAX: usize = 500;

/// The address of a server, and the common parts of all requests to it. Clones share connections.
#[derive(Debug, Clone)]
pub(in crate::cli::bench) struct Client {
    http: HttpClient<HttpsConnector<HttpConnector>, String>,
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

/// Returns the headers of every request: those given as `KEY=VALUE`, and the key as a bearer token.
pub(in crate::cli::bench) fn headers(
    given: &[String],
    key: Option<String>,
) -> Result<HeaderMap, CliError> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let key = key.filter(|key| !key.is_empty()).map(|key| format!("Bearer {key}"));
    let key = key.and_then(|bearer| HeaderValue::try_from(bearer).ok());
    headers.extend(key.map(|key| (AUTHORIZATION, key)));
    for header in given {
        let wrong = || CliError::Usage(format!("--header: {header:?} is no KEY=VALUE"));
        let (name, value) = header.split_once('=').ok_or_else(wrong)?;
        let name = HeaderName::try_from(name.trim()).map_err(|_| wrong())?;
        headers.insert(name, HeaderValue::try_from(value.trim()).map_err(|_| wrong())?);
    }
    Ok(headers)
}

impl Client {
    /// Returns a client, which connects at its first request.
    pub(in crate::cli::bench) fn new(target: Target) -> Result<Self, CliError> {
        let mut tcp = HttpConnector::new();
        tcp.set_nodelay(true);
        tcp.enforce_http(false);
        let builder = HttpsConnectorBuilder::new();
        // Plain HTTP needs no certificates, and a small container has none.
        let builder = match target.base_url.starts_with("http://") {
            true => builder.with_tls_config(without_roots()?),
            false => builder
                .with_provider_and_native_roots(ring::default_provider())
                .map_err(CliError::io("cannot read the system's certificates"))?,
        };
        let connector = builder.https_or_http().enable_http1().wrap_connector(tcp);
        let http = HttpClient::builder(TokioExecutor::new()).build(connector);
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

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: String,
    ) -> Result<hyper::Response<Incoming>, String> {
        let url = format!("{}{path}", self.target.base_url);
        let uri: Uri = url.parse().map_err(|error| format!("{url}: {error}"))?;
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        *request.headers_mut() = self.target.headers.clone();
        let mut answer = self.http.request(request.clone()).await;
        if answer.as_ref().is_err_and(was_closed) {
            answer = self.http.request(request).await;
        }
        answer.map_err(|error| match error.source() {
            Some(cause) => format!("{url}: {error}: {cause}"),
            None => format!("{url}: {error}"),
        })
    }

    /// Returns whether the server is healthy.
    pub(in crate::cli::bench) async fn is_healthy(&self) -> bool {
        let answer = self.send(Method::GET, "/health", String::new()).await;
        answer.is_ok_and(|response| response.status() == StatusCode::OK)
    }

    /// Returns the id of the server's first model, and the path that the server loaded it from.
    pub(in crate::cli::bench) async fn first_model(
        &self,
    ) -> Result<(String, Option<String>), String> {
        let response = self.send(Method::GET, "/v1/models", String::new()).await?;
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
        let response = self.send(Method::GET, "/metrics", String::new()).await.ok()?;
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
        let outcome = match self.send(Method::POST, &self.target.endpoint, body).await {
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

/// Returns whether the server closed the connection before it answered, so that the request must be
/// sent once more. llama.cpp's server does that after a stream, on connections that it promised to
/// keep.
fn was_closed(error: &HttpError) -> bool {
    let Some(cause) = error.source().and_then(|cause| cause.downcast_ref::<hyper::Error>()) else {
        return false;
    };
    let io = cause.source().and_then(|cause| cause.downcast_ref::<io::Error>());
    cause.is_incomplete_message()
        || io.is_some_and(|io| io.kind() == io::ErrorKind::ConnectionReset)
}

/// Returns TLS settings that trust no certificate.
fn without_roots() -> Result<ClientConfig, CliError> {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)
        .map_err(CliError::io("cannot set up TLS"))?;
    Ok(config.with_root_certificates(RootCertStore::empty()).with_no_client_auth())
}

async fn whole_text(response: hyper::Response<Incoming>) -> String {
    const BYTES_MAX: usize = 1 << 20;
    match axum::body::to_bytes(Body::new(response.into_body()), BYTES_MAX).await {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => error.to_string(),
    }
}

/// Returns the status and the server's message about it.
fn error_of(status: StatusCode, text: &str) -> String {
    let value: Value = serde_json::from_str(text).unwrap_or_default();
    let message = value["error"]["message"].as_str().unwrap_or(text);
    let message: String = message.chars().take(ERROR_CHARS_MAX).collect();
    format!("{status}: {message}")
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

    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

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

    /// The first connection is reset at its second request, which was not read to its end. The
    /// second connection is closed at its second request, and the third by the client.
    #[tokio::test]
    async fn a_request_on_a_connection_that_was_not_kept_is_sent_again() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let target = Target {
            base_url: format!("http://{}", listener.local_addr().unwrap()),
            endpoint: String::new(),
            backend: Backend::Openai,
            headers: HeaderMap::new(),
            body: Map::new(),
            model: String::new(),
        };
        let server = tokio::spawn(async move {
            let mut bytes = [0; 4096];
            for read_at_most in [1, 4096, 4096] {
                let (mut connection, _) = listener.accept().await.unwrap();
                assert!(connection.read(&mut bytes).await.unwrap() > 0);
                let answer =
                    b"HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok";
                connection.write_all(answer).await.unwrap();
                let next = connection.read(&mut bytes[..read_at_most]).await.unwrap();
                assert!(next <= read_at_most);
            }
        });
        let client = Client::new(target).unwrap();
        for _ in 0..3 {
            let answer = client.send(Method::GET, "/health", String::new()).await.unwrap();
            assert_eq!(whole_text(answer).await, "ok");
        }
        drop(client);
        server.await.unwrap();
    }

    #[test]
    fn headers_are_pairs() {
        let given = ["x-a=1=2".to_owned(), "Authorization = Bearer b".to_owned()];
        let headers = headers(&given, Some("a".to_owned())).unwrap();
        assert_eq!(headers["x-a"], "1=2");
        assert_eq!(headers["authorization"], "Bearer b", "given headers win");
        assert!(super::headers(&["x".to_owned()], None).is_err());
    }
}
