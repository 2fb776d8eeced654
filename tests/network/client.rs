//! A client that speaks a given HTTP version over a given connection.

use std::{io, sync::Arc};

use axum::body::{Body, to_bytes};
use hyper::{
    Request, StatusCode,
    client::conn::{http1, http2},
    header::{CONTENT_TYPE, HOST},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{ClientConfig, pki_types::ServerName};
use serde_json::Value;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::serving::Served;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    Http1,
    Http2,
}

pub(crate) fn get(path: &str) -> Request<String> {
    Request::get(path).header(HOST, "localhost").body(String::new()).unwrap()
}

pub(crate) fn post(path: &str, body: &Value) -> Request<String> {
    let request = Request::post(path).header(HOST, "localhost");
    request.header(CONTENT_TYPE, "application/json").body(body.to_string()).unwrap()
}

/// Opens a plain connection to the server's TCP port.
pub(crate) async fn connect(served: &Served) -> TcpStream {
    let (_, address) = served.url.split_once("://").unwrap();
    TcpStream::connect(address).await.unwrap()
}

/// Opens a TLS connection to the server's TCP port.
pub(crate) async fn shake_hands(
    served: &Served,
    config: Arc<ClientConfig>,
) -> io::Result<TlsStream<TcpStream>> {
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(config).connect(name, connect(served).await).await
}

/// Sends one request on a connection of its own. Returns the status and the text of the answer.
pub(crate) async fn ask(
    connection: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    version: Version,
    request: Request<String>,
) -> hyper::Result<(StatusCode, String)> {
    let io = TokioIo::new(connection);
    let response = match version {
        Version::Http1 => {
            let (mut sender, driver) = http1::handshake(io).await?;
            tokio::spawn(driver);
            sender.send_request(request).await?
        }
        Version::Http2 => {
            // HTTP/2 has the whole address in each request.
            let (mut parts, body) = request.into_parts();
            let path = parts.uri.to_string();
            parts.uri = format!("http://localhost{path}").parse().unwrap();
            parts.headers.remove(HOST);
            let (mut sender, driver) = http2::handshake(TokioExecutor::new(), io).await?;
            tokio::spawn(driver);
            sender.send_request(Request::from_parts(parts, body)).await?
        }
    };
    let status = response.status();
    let body = to_bytes(Body::new(response.into_body()), usize::MAX).await;
    let text =
        body.map_or_else(|error| error.to_string(), |b| String::from_utf8(b.into()).unwrap());
    Ok((status, text))
}
