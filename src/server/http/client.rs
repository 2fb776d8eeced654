//! A client of other HTTP servers.

use std::{io, sync::Arc};

use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use rustls::{ClientConfig, RootCertStore, crypto::ring};

/// A client whose requests have the body `B`. Clones share connections.
pub(crate) type HttpClient<B> = Client<HttpsConnector<HttpConnector>, B>;

/// Returns a client of the server at `url`, which connects at its first request.
///
/// # Errors
/// If the system's certificates cannot be read, and the URL is not one of plain HTTP.
pub(crate) fn http_client<B>(url: &str) -> io::Result<HttpClient<B>>
where
    B: hyper::body::Body + Send,
    B::Data: Send,
{
    let mut tcp = HttpConnector::new();
    tcp.set_nodelay(true);
    tcp.enforce_http(false);
    let builder = HttpsConnectorBuilder::new();
    // Plain HTTP needs no certificates, and a small container has none.
    let builder = match url.starts_with("http://") {
        true => builder.with_tls_config(without_roots()?),
        false => builder.with_provider_and_native_roots(ring::default_provider())?,
    };
    let connector = builder.https_or_http().enable_http1().wrap_connector(tcp);
    Ok(Client::builder(TokioExecutor::new()).build(connector))
}

/// Returns TLS settings that trust no certificate.
fn without_roots() -> io::Result<ClientConfig> {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?;
    Ok(config.with_root_certificates(RootCertStore::empty()).with_no_client_auth())
}
