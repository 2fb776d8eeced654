//! Where connections come from: TCP or a Unix socket, with TLS or without. What is spoken on them,
//! HTTP/1.1 or HTTP/2, shows at their first bytes.

mod activity;
mod connection;
mod impatient;
#[cfg(test)]
mod tests;
mod tls;
#[cfg(unix)]
mod uds;

use std::{fmt, io, net::SocketAddr, time::Duration};

use axum::Router;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    task::JoinSet,
    time::sleep,
};
use tokio_util::sync::CancellationToken;

use self::connection::Protocol;
pub(super) use self::tls::Tls;
pub use self::tls::TlsError;
#[cfg(unix)]
use self::uds::UnixSocket;
use super::ServerError;
use crate::config::ServerSettings;

/// How long to wait when the system gives out no more connections.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// A socket that listens. Dropped, it does not, and the file of a Unix socket is gone.
#[derive(Debug)]
pub struct Listener(Socket);

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    #[cfg(unix)]
    Unix(UnixSocket),
}

/// Where a [`Listener`] listens; shown as clients write it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Address {
    /// A TCP address.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(std::path::PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl From<TcpListener> for Listener {
    fn from(listener: TcpListener) -> Self {
        Self(Socket::Tcp(listener))
    }
}

impl Listener {
    /// Listens where the settings say.
    ///
    /// # Errors
    /// [`ServerError::Bind`] if that is taken or there is no such place.
    pub async fn bind(config: &ServerSettings) -> Result<Self, ServerError> {
        if let Some(path) = &config.uds {
            let address = Address::Unix(path.clone()).to_string();
            return unix(path, config).map_err(|source| ServerError::Bind { address, source });
        }
        let bound = TcpListener::bind((config.host.as_str(), config.port)).await;
        bound.map(Self::from).map_err(|source| {
            let address = format!("{}:{}", config.host, config.port);
            ServerError::Bind { address, source }
        })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// What the system says.
    pub fn address(&self) -> io::Result<Address> {
        match &self.0 {
            Socket::Tcp(listener) => listener.local_addr().map(Address::Tcp),
            #[cfg(unix)]
            Socket::Unix(socket) => Ok(Address::Unix(socket.path().to_owned())),
        }
    }

    async fn accept(&self) -> io::Result<Connection> {
        match &self.0 {
            Socket::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                // Tokens are small packets; they must not wait to be joined.
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "TCP_NODELAY cannot be set");
                }
                Ok(Box::new(stream))
            }
            #[cfg(unix)]
            Socket::Unix(socket) => Ok(Box::new(socket.accept().await?)),
        }
    }
}

#[cfg(unix)]
fn unix(path: &std::path::Path, config: &ServerSettings) -> io::Result<Listener> {
    UnixSocket::bind(path, config.uds_mode).map(|socket| Listener(Socket::Unix(socket)))
}

#[cfg(not(unix))]
fn unix(_: &std::path::Path, _: &ServerSettings) -> io::Result<Listener> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "this system has no Unix sockets"))
}

/// A connection of either kind.
trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}
type Connection = Box<dyn Stream>;

/// Serves `app` to whoever connects until `stop`, and then until every connection has what it asked
/// for. Dropped, it cuts them off.
pub(super) async fn serve(
    listener: Listener,
    app: Router,
    tls: Option<Tls>,
    config: &ServerSettings,
    stop: CancellationToken,
) {
    let protocol = Protocol::new(app, tls, config);
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            Some(_) = connections.join_next() => {}
            accepted = listener.accept(), if connections.len() < config.max_connections => {
                match accepted {
                    Ok(connection) => {
                        connections.spawn(protocol.clone().serve(connection, stop.clone()));
                    }
                    Err(error) if is_the_clients(&error) => {}
                    Err(error) => {
                        tracing::error!(%error, "no connection can be accepted");
                        sleep(ACCEPT_PAUSE).await;
                    }
                }
            }
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// Whether it is about one client that was too quick to leave.
fn is_the_clients(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}
