//! Fetches media over HTTP, for a client that is not trusted. The addresses of a server's name are
//! checked after it was resolved, and exactly those are connected to. The same holds for each
//! redirect. Nothing of the client's request is sent on.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::{Arc, OnceLock},
    time::Duration,
};

use axum::{
    body::Body,
    http::{
        Request, StatusCode,
        header::{ACCEPT, CONNECTION, CONTENT_LENGTH, HOST, LOCATION, USER_AGENT},
    },
};
use futures_util::{StreamExt, future::BoxFuture};
use hyper::{Response, body::Incoming, client::conn::http1};
use hyper_rustls::ConfigBuilderExt;
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, crypto::ring, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, lookup_host},
    time::timeout,
};
use tokio_rustls::TlsConnector;

use super::{addresses::is_public, location::Location};
use crate::server::{http::error::ApiError, memory::RequestMemory};

/// Redirects that are followed.
const REDIRECTS_MAX: usize = 5;
/// Addresses of a server that are tried.
const ADDRESSES_MAX: usize = 4;
/// Time for a connection to one address.
const CONNECT_TIME: Duration = Duration::from_secs(3);
/// The name that allows all domains.
const ANY: &str = "*";
const AGENT: &str = concat!("playhouse/", env!("CARGO_PKG_VERSION"));

/// Finds the addresses of names.
pub(super) trait Resolver: Send + Sync {
    /// Returns the addresses of a host.
    fn resolve(&self, host: String, port: u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>>;
}

/// The system's resolver.
struct SystemResolver;

impl Resolver for SystemResolver {
    fn resolve(&self, host: String, port: u16) -> BoxFuture<'static, io::Result<Vec<SocketAddr>>> {
        Box::pin(async move { Ok(lookup_host((host, port)).await?.collect()) })
    }
}

/// Fetches media from the domains that the operator allows.
pub(super) struct Fetcher {
    domains: Vec<String>,
    bytes_max: usize,
    time: Duration,
    resolver: Box<dyn Resolver>,
    /// Whether an address may be connected to.
    reaches: fn(IpAddr) -> bool,
    tls: OnceLock<Arc<ClientConfig>>,
}

impl Fetcher {
    /// Returns a fetcher from `domains`: names of servers, or `*` for all. A file may have
    /// `bytes_max` bytes, and take `time`.
    pub(super) fn new(domains: &[String], bytes_max: usize, time: Duration) -> Self {
        Self {
            domains: domains.iter().map(|domain| domain.to_ascii_lowercase()).collect(),
            bytes_max,
            time,
            resolver: Box::new(SystemResolver),
            reaches: is_public,
            tls: OnceLock::new(),
        }
    }

    /// Returns the file at a URL. Its memory is leased as it arrives.
    ///
    /// # Errors
    /// 400 if the URL is not allowed, or the file cannot be fetched. As [`RequestMemory::grow`].
    pub(super) async fn fetch(
        &self,
        url: &str,
        memory: &RequestMemory,
    ) -> Result<Vec<u8>, ApiError> {
        let late = |_| {
            let seconds = self.time.as_secs_f64();
            refused(format!("it took more than {seconds} s (media_fetch_timeout_secs)"))
        };
        timeout(self.time, self.follow(url, memory)).await.map_err(late)?
    }

    async fn follow(&self, url: &str, memory: &RequestMemory) -> Result<Vec<u8>, ApiError> {
        let mut place = Location::parse(url).map_err(ApiError::bad_request)?;
        for _ in 0..=REDIRECTS_MAX {
            self.check_domain(&place)?;
            let response = self.get(&place).await.map_err(refused)?;
            let status = response.status();
            if status.is_redirection() && status != StatusCode::NOT_MODIFIED {
                let to = response.headers().get(LOCATION).and_then(|to| to.to_str().ok());
                let to = to.ok_or_else(|| refused("a redirect names no place".to_owned()))?;
                place = place.redirected(to).map_err(refused)?;
                continue;
            }
            if !status.is_success() {
                return Err(refused(format!("HTTP {} error", status.as_u16())));
            }
            return self.read(response, memory).await;
        }
        Err(refused(format!("more than {REDIRECTS_MAX} redirects")))
    }

    fn check_domain(&self, place: &Location) -> Result<(), ApiError> {
        let host = &place.host;
        if self.domains.is_empty() {
            let message = format!(
                "This server fetches no media, because `--allowed-media-domains` names no domain. \
                 Send the content as a data URL. Input URL domain: {host}"
            );
            return Err(ApiError::bad_request(message));
        }
        if self.domains.iter().any(|domain| domain == host || domain == ANY) {
            return Ok(());
        }
        let domains: Vec<String> =
            self.domains.iter().map(|domain| format!("'{domain}'")).collect();
        let message = format!(
            "The URL must be from one of the allowed domains: [{}]. Input URL domain: {host}",
            domains.join(", ")
        );
        Err(ApiError::bad_request(message))
    }

    /// Sends the request to a place, and returns the head of the answer.
    async fn get(&self, place: &Location) -> Result<Response<Incoming>, String> {
        let addresses = self.addresses(place).await?;
        let stream = connect(&addresses).await.map_err(|error| error.to_string())?;
        if !place.is_tls {
            return send(place, stream).await;
        }
        let name = ServerName::try_from(place.host.clone())
            .map_err(|_| "the host is no name for a certificate".to_owned())?;
        let connector = TlsConnector::from(self.tls()?);
        let stream = connector.connect(name, stream).await.map_err(|error| error.to_string())?;
        send(place, stream).await
    }

    /// Returns the addresses of a place. All must be public.
    async fn addresses(&self, place: &Location) -> Result<Vec<SocketAddr>, String> {
        let found = match place.host.parse::<IpAddr>() {
            Ok(address) => vec![SocketAddr::new(address, place.port)],
            Err(_) => {
                let found = self.resolver.resolve(place.host.clone(), place.port).await;
                found.map_err(|error| format!("the host cannot be resolved: {error}"))?
            }
        };
        if let Some(address) = found.iter().find(|address| !(self.reaches)(address.ip())) {
            tracing::warn!(host = %place.host, %address, "media of a private address was asked for");
            return Err("the host has an address that is not of the public internet".to_owned());
        }
        match found.is_empty() {
            true => Err("the host has no address".to_owned()),
            false => Ok(found),
        }
    }

    fn tls(&self) -> Result<Arc<ClientConfig>, String> {
        if let Some(config) = self.tls.get() {
            return Ok(Arc::clone(config));
        }
        let failed = |error: String| format!("TLS cannot be set up: {error}");
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| failed(error.to_string()))?
            .with_native_roots()
            .map_err(|error| failed(error.to_string()))?
            .with_no_client_auth();
        Ok(Arc::clone(self.tls.get_or_init(|| Arc::new(config))))
    }

    async fn read(
        &self,
        response: Response<Incoming>,
        memory: &RequestMemory,
    ) -> Result<Vec<u8>, ApiError> {
        let too_large = || {
            let most = self.bytes_max;
            refused(format!("the file has more than {most} bytes (media_max_bytes)"))
        };
        let announced = response.headers().get(CONTENT_LENGTH);
        let announced = announced.and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
        if announced.is_some_and(|bytes| bytes > self.bytes_max) {
            return Err(too_large());
        }
        let mut chunks = Body::new(response.into_body()).into_data_stream();
        let mut content = Vec::new();
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.map_err(|error| refused(error.to_string()))?;
            if content.len() + chunk.len() > self.bytes_max {
                return Err(too_large());
            }
            // Twice: a vector may be copied as it grows, and into its final place.
            memory.grow(2 * chunk.len()).await?;
            content.extend_from_slice(&chunk);
        }
        Ok(content)
    }
}

/// Connects to the first address that answers.
async fn connect(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    let mut failed = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in addresses.iter().take(ADDRESSES_MAX) {
        failed = match timeout(CONNECT_TIME, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => error,
            Err(_) => io::ErrorKind::TimedOut.into(),
        };
    }
    Err(failed)
}

/// Sends the request over a connection. The connection ends with the answer.
async fn send(
    place: &Location,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<Response<Incoming>, String> {
    let failed = |error: hyper::Error| error.to_string();
    let (mut sender, connection) =
        http1::Builder::new().handshake(TokioIo::new(stream)).await.map_err(failed)?;
    // It ends when its sender and the answer are dropped.
    tokio::spawn(connection);
    let request = Request::get(&place.path)
        .header(HOST, place.authority())
        .header(USER_AGENT, AGENT)
        .header(ACCEPT, "*/*")
        .header(CONNECTION, "close")
        .body(Body::empty())
        .map_err(|error| error.to_string())?;
    sender.send_request(request).await.map_err(failed)
}

/// Returns the client's error.
fn refused(why: String) -> ApiError {
    ApiError::bad_request(format!("Failed to fetch media from URL: {why}"))
}

#[cfg(test)]
mod tests;
