//! A client of HTTP servers, for the commands that talk to one.

#[cfg(unix)]
use std::path::Path;
use std::{error::Error as _, io};

use axum::body::Body;
#[cfg(unix)]
use hyper::client::conn::http1;
use hyper::{
    Method, Request, StatusCode, Uri,
    body::Incoming,
    header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue},
};
use hyper_util::client::legacy::Error as HttpError;
#[cfg(unix)]
use hyper_util::rt::TokioIo;
use serde_json::Value;
#[cfg(unix)]
use tokio::net::UnixStream;

use super::CliError;
use crate::server::{HttpClient, http_client};

/// Most characters of an error's text that are shown.
pub(super) const ERROR_CHARS_MAX: usize = 500;

/// A server, and the headers of all requests to it. Clones share connections.
#[derive(Debug, Clone)]
pub(super) struct Http {
    http: HttpClient<String>,
    base_url: String,
    headers: HeaderMap,
}

/// Returns the headers of every request: those given as `KEY=VALUE`, and the key as a bearer token.
pub(super) fn headers(given: &[String], key: Option<String>) -> Result<HeaderMap, CliError> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(key) = key.as_deref().map(str::trim).filter(|key| !key.is_empty()) {
        let bearer = HeaderValue::try_from(format!("Bearer {key}")).map_err(|_| {
            CliError::Usage("the API key has characters that no header may have".to_owned())
        })?;
        headers.insert(AUTHORIZATION, bearer);
    }
    for header in given {
        let wrong = || CliError::Usage(format!("--header: {header:?} is no KEY=VALUE"));
        let (name, value) = header.split_once('=').ok_or_else(wrong)?;
        let name = HeaderName::try_from(name.trim()).map_err(|_| wrong())?;
        headers.insert(name, HeaderValue::try_from(value.trim()).map_err(|_| wrong())?);
    }
    Ok(headers)
}

impl Http {
    /// Returns a client, which connects at its first request.
    pub(super) fn new(base_url: &str, headers: HeaderMap) -> Result<Self, CliError> {
        if !["http://", "https://"].iter().any(|scheme| base_url.starts_with(scheme)) {
            return Err(CliError::Usage(format!(
                "{base_url:?} is no address of a server: it must begin with http:// or https://"
            )));
        }
        let http = http_client(base_url);
        let http = http.map_err(CliError::io("cannot read the system's certificates"))?;
        Ok(Self { http, base_url: base_url.to_owned(), headers })
    }

    /// Sends a request. `path` follows the base URL.
    ///
    /// # Errors
    /// A text, if the server cannot be reached.
    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        body: String,
    ) -> Result<hyper::Response<Incoming>, String> {
        let url = format!("{}{path}", self.base_url);
        let uri: Uri = url.parse().map_err(|error| format!("{url}: {error}"))?;
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        *request.headers_mut() = self.headers.clone();
        let mut answer = self.http.request(request.clone()).await;
        if answer.as_ref().is_err_and(was_closed) {
            answer = self.http.request(request).await;
        }
        answer.map_err(|error| match error.source() {
            Some(cause) => format!("{url}: {error}: {cause}"),
            None => format!("{url}: {error}"),
        })
    }
}

/// Sends a request to a server that listens on a Unix socket, on a connection of its own.
///
/// # Errors
/// A text, if the server cannot be reached.
#[cfg(unix)]
pub(super) async fn send_to_socket(
    socket: &Path,
    method: Method,
    path: &str,
    headers: HeaderMap,
) -> Result<hyper::Response<Incoming>, String> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", socket.display());
    let stream = UnixStream::connect(socket).await.map_err(|error| failed(&error))?;
    let connected = http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = connected.map_err(|error| failed(&error))?;
    // Its failure is that of the request.
    tokio::spawn(connection);
    let mut request = Request::new(String::new());
    *request.method_mut() = method;
    *request.uri_mut() = path.parse().map_err(|error| format!("{path}: {error}"))?;
    *request.headers_mut() = headers;
    request.headers_mut().insert(hyper::header::HOST, HeaderValue::from_static("localhost"));
    sender.send_request(request).await.map_err(|error| failed(&error))
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

/// Returns the body of an answer.
pub(super) async fn whole_text(response: hyper::Response<Incoming>) -> String {
    const BYTES_MAX: usize = 1 << 20;
    match axum::body::to_bytes(Body::new(response.into_body()), BYTES_MAX).await {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => error.to_string(),
    }
}

/// Returns the status and the server's message about it.
pub(super) fn error_of(status: StatusCode, text: &str) -> String {
    let value: Value = serde_json::from_str(text).unwrap_or_default();
    // vLLM's answer to a wrong key has its text in `error` itself.
    let message = value["error"]["message"].as_str().or(value["error"].as_str()).unwrap_or(text);
    let message: String = message.chars().take(ERROR_CHARS_MAX).collect();
    format!("{status}: {message}")
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;

    #[test]
    fn an_error_has_the_servers_text() {
        let refused = r#"{"error": {"message": "no such model"}}"#;
        assert_eq!(error_of(StatusCode::NOT_FOUND, refused), "404 Not Found: no such model");
        assert_eq!(error_of(StatusCode::BAD_GATEWAY, "a proxy"), "502 Bad Gateway: a proxy");
        let unknown = error_of(StatusCode::UNAUTHORIZED, r#"{"error": "Unauthorized"}"#);
        assert_eq!(unknown, "401 Unauthorized: Unauthorized");
    }

    /// The first connection is reset at its second request, which was not read to its end. The
    /// second connection is closed at its second request, and the third by the client.
    #[tokio::test]
    async fn a_request_on_a_connection_that_was_not_kept_is_sent_again() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
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
        let client = Http::new(&url, HeaderMap::new()).unwrap();
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
        let of_a_file = super::headers(&[], Some("a\n".to_owned())).unwrap();
        assert_eq!(of_a_file["authorization"], "Bearer a");
        assert!(super::headers(&[], Some("a\nb".to_owned())).is_err(), "it is not left out");
    }

    #[test]
    fn an_address_without_a_scheme_is_refused() {
        let refused = Http::new("localhost:8000", HeaderMap::new()).unwrap_err().to_string();
        assert!(refused.contains("http://"), "{refused}");
        assert!(Http::new("http://localhost:8000", HeaderMap::new()).is_ok());
    }
}
