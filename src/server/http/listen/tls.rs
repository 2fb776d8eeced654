//! TLS by rustls: the server's certificate, and those of clients if they are required.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use parking_lot::RwLock;
use rustls::{
    RootCertStore, ServerConfig,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use crate::{
    config::{CertReqs, ServerSettings},
    files,
};

/// A file of the TLS settings cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{setting} {path:?}: {reason}")]
pub struct TlsError {
    /// The setting that names the file.
    pub setting: &'static str,
    /// The file.
    pub path: PathBuf,
    /// The reason.
    pub reason: String,
}

/// The paths of the certificates and keys.
#[derive(Debug, Clone)]
struct Files {
    certificates: PathBuf,
    key: Option<PathBuf>,
    authorities: Option<PathBuf>,
    clients: CertReqs,
}

/// The configuration of handshakes. Cheap to clone.
#[derive(Clone)]
pub(in crate::server) struct Tls {
    files: Arc<Files>,
    current: Arc<RwLock<Arc<ServerConfig>>>,
}

impl Tls {
    /// Reads the files that the settings name. Returns `None` if they name no certificate.
    pub(in crate::server) fn new(config: &ServerSettings) -> Result<Option<Self>, TlsError> {
        let Some(certificates) = config.ssl_certfile.clone() else { return Ok(None) };
        let files = Files {
            certificates,
            key: config.ssl_keyfile.clone(),
            authorities: config.ssl_ca_certs.clone(),
            clients: config.ssl_cert_reqs,
        };
        let current = Arc::new(RwLock::new(Arc::new(files.load()?)));
        Ok(Some(Self { files: Arc::new(files), current }))
    }

    /// Returns the files it was read from.
    pub(in crate::server) fn paths(&self) -> Vec<PathBuf> {
        let Files { certificates, key, authorities, .. } = &*self.files;
        [Some(certificates), key.as_ref(), authorities.as_ref()]
            .into_iter()
            .flatten()
            .cloned()
            .collect()
    }

    /// Reads the files again. If they cannot be used, the old ones stay in use.
    pub(in crate::server) fn reload(&self) {
        match self.files.load() {
            Ok(config) => {
                *self.current.write() = Arc::new(config);
                tracing::info!("the TLS certificates were read again");
            }
            Err(error) => tracing::error!(%error, "the TLS certificates stay as they were"),
        }
    }

    /// Runs the server's side of a handshake.
    pub(super) async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        connection: S,
    ) -> std::io::Result<TlsStream<S>> {
        let config = self.current.read().clone();
        TlsAcceptor::from(config).accept(connection).await
    }
}

impl Files {
    fn load(&self) -> Result<ServerConfig, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let key_file = self.key.as_ref().unwrap_or(&self.certificates);
        let pem = files::read(key_file).map_err(|error| refuse("ssl_keyfile", key_file, error))?;
        let key = PrivateKeyDer::from_pem_slice(&pem)
            .map_err(|error| refuse("ssl_keyfile", key_file, error))?;
        let chain = certificates("ssl_certfile", &self.certificates)?;
        let refuse = |error| refuse("ssl_certfile", &self.certificates, error);
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(refuse)?
            .with_client_cert_verifier(self.client_verifier(provider)?);
        let mut config = builder.with_single_cert(chain, key).map_err(refuse)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }

    fn client_verifier(
        &self,
        provider: Arc<CryptoProvider>,
    ) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
        let Some(path) = self.authorities.as_ref().filter(|_| self.clients != CertReqs::None)
        else {
            return Ok(WebPkiClientVerifier::no_client_auth());
        };
        let setting = "ssl_ca_certs";
        let mut roots = RootCertStore::empty();
        for authority in certificates(setting, path)? {
            roots.add(authority).map_err(|error| refuse(setting, path, error))?;
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        let verifier = match self.clients {
            CertReqs::Required => verifier,
            CertReqs::Optional | CertReqs::None => verifier.allow_unauthenticated(),
        };
        verifier.build().map_err(|error| refuse(setting, path, error))
    }
}

fn certificates(
    setting: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let pem = files::read(path).map_err(|error| refuse(setting, path, error))?;
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let found = read.map_err(|error| refuse(setting, path, error))?;
    match found.is_empty() {
        true => Err(refuse(setting, path, "it holds no certificate")),
        false => Ok(found),
    }
}

fn refuse(setting: &'static str, path: &Path, reason: impl ToString) -> TlsError {
    TlsError { setting, path: path.to_owned(), reason: reason.to_string() }
}
