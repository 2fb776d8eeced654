//! Sources of connections: TCP or a Unix socket, with TLS or without. The first bytes of a
//! connection show its protocol, HTTP/1.1 or HTTP/2.

mod accept;
mod activity;
mod answer_body;
mod connection;
mod impatient;
mod phases;
mod routes;
mod socket;
mod streams;
#[cfg(test)]
mod tests;
mod tls;
#[cfg(unix)]
mod uds;
mod watch;

#[cfg(all(unix, feature = "cli"))]
use std::os::fd::OwnedFd;
use std::{fmt, io, net::SocketAddr, sync::Arc, time::Duration};

use tokio::{net::TcpListener, runtime::Handle, sync::Semaphore, time::timeout};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

#[cfg(all(unix, feature = "cli"))]
use self::socket::Socket;
pub use self::tls::TlsError;
#[cfg(unix)]
use self::uds::SocketFile;
use self::{
    accept::AcceptContext, connection::ConnectionServer, phases::Phases, socket::Acceptor,
    watch::Watch,
};
pub(in crate::server) use self::{
    activity::{Activity, Upgraded},
    routes::{CurrentRoutes, WeakRoutes},
    tls::Tls,
};
use crate::config::ServerSettings;
use crate::server::{ServerError, health::pulse::RuntimePulse};

/// Longest time in which connections and threads end once all requests are answered.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);
/// Longest wait for connections without a request, before a server that leaves ends them.
const SILENCE_LIMIT: Duration = Duration::from_secs(5);
/// The same if new connections wait in the system for the next server.
const RESTART_SILENCE_LIMIT: Duration = Duration::from_secs(1);
/// Most concurrent connections while the runtime is frozen.
const FROZEN_CONNECTIONS_MAX: usize = 64;

/// A listening socket. A drop closes it and removes the file of a Unix socket.
#[derive(Debug)]
pub struct Listener {
    acceptor: Acceptor,
    /// Whether a service manager opened it. That keeps it open while no server runs.
    is_activated: bool,
    #[cfg(unix)]
    file: Option<SocketFile>,
}

/// The address of a [`Listener`], displayed as clients write it.
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
        Self {
            acceptor: Acceptor::Tcp(listener),
            is_activated: false,
            #[cfg(unix)]
            file: None,
        }
    }
}

impl Listener {
    /// Listens where the settings say.
    ///
    /// # Errors
    /// [`ServerError::Bind`] if the address is taken or does not exist.
    pub async fn bind(config: &ServerSettings) -> Result<Self, ServerError> {
        if let Some(path) = &config.uds {
            let address = Address::Unix(path.clone()).to_string();
            let bound = unix(path, config).await;
            return bound.map_err(|source| ServerError::Bind { address, source });
        }
        let bound = TcpListener::bind((config.host.as_str(), config.port)).await;
        bound.map(Self::from).map_err(|source| {
            let address = format!("{}:{}", config.host, config.port);
            ServerError::Bind { address, source }
        })
    }

    /// Takes a socket that another process has opened: a service manager if it `is_activated`, or
    /// else a server with these settings.
    ///
    /// # Errors
    /// The system's error, or the reason why it is no such socket.
    #[cfg(all(unix, feature = "cli"))]
    pub(crate) fn inherited(
        socket: OwnedFd,
        is_activated: bool,
        config: &ServerSettings,
    ) -> io::Result<Self> {
        let socket = Socket::of_another(socket)?;
        let file = match (&socket, &config.uds) {
            _ if is_activated => None,
            (Socket::Unix(_), Some(path)) => Some(SocketFile::of_another(path)?),
            (Socket::Tcp(_), None) => None,
            _ => return Err(io::Error::other("the settings name a socket of another kind")),
        };
        Ok(Self { acceptor: socket.into_acceptor()?, is_activated, file })
    }

    /// Returns whether a service manager opened it.
    #[cfg(all(unix, feature = "cli"))]
    pub(crate) fn is_activated(&self) -> bool {
        self.is_activated
    }

    /// Returns these settings with the address of a service manager's socket in place of theirs.
    ///
    /// # Errors
    /// The system's error.
    #[cfg(feature = "cli")]
    pub(crate) fn settings(&self, config: ServerSettings) -> io::Result<ServerSettings> {
        if !self.is_activated {
            return Ok(config);
        }
        Ok(match self.address()? {
            Address::Tcp(address) => {
                let (host, port) = (address.ip().to_string(), address.port());
                ServerSettings { host, port, uds: None, ..config }
            }
            Address::Unix(path) => ServerSettings { uds: Some(path), ..config },
        })
    }

    /// Returns another handle to the socket, for another process.
    ///
    /// # Errors
    /// The system's error.
    #[cfg(all(unix, feature = "cli"))]
    pub(crate) fn handle(&self) -> io::Result<OwnedFd> {
        self.acceptor.handle()
    }

    /// Returns the address where it listens.
    ///
    /// # Errors
    /// The system's error.
    pub fn address(&self) -> io::Result<Address> {
        #[cfg(unix)]
        if let Some(file) = &self.file {
            return Ok(Address::Unix(file.path().to_owned()));
        }
        self.acceptor.address()
    }
}

#[cfg(unix)]
async fn unix(path: &std::path::Path, config: &ServerSettings) -> io::Result<Listener> {
    let (listener, file) = uds::bind(path, config.uds_mode).await?;
    let acceptor = Acceptor::Unix(listener);
    Ok(Listener { acceptor, is_activated: false, file: Some(file) })
}

#[cfg(not(unix))]
async fn unix(_: &std::path::Path, _: &ServerSettings) -> io::Result<Listener> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "this system has no Unix sockets"))
}

/// The routes of a server.
pub(in crate::server) struct Apps {
    pub(in crate::server) app: CurrentRoutes,
    /// Used instead while the runtime is frozen. It must not wait for the runtime.
    pub(in crate::server) frozen: CurrentRoutes,
}

/// A server that accepts connections. A drop cuts them off.
pub(in crate::server) struct Listening {
    phases: Phases,
    connections: TaskTracker,
    cut: CancellationToken,
    threads: TaskTracker,
    watch: Watch,
    is_activated: bool,
    server: ConnectionServer,
    #[cfg(unix)]
    file: Option<SocketFile>,
}

/// Serves `apps` on the current runtime to every client that connects, until the returned value is
/// closed or dropped. Requests that come once `draining` is cancelled do not delay a drain.
///
/// # Errors
/// The system's error if it has no thread.
pub(in crate::server) fn open(
    listener: Listener,
    apps: Apps,
    tls: Option<Tls>,
    config: &ServerSettings,
    draining: CancellationToken,
    pulse: RuntimePulse,
) -> io::Result<Listening> {
    let phases = Phases::new(draining);
    let (connections, threads) = (TaskTracker::new(), TaskTracker::new());
    let (cut, max) = (CancellationToken::new(), config.max_connections);
    let server = ConnectionServer::new(apps.app, tls.clone(), config, phases.clone());
    let context = AcceptContext {
        socket: Arc::new(listener.acceptor.into_socket()?),
        server: server.clone(),
        runtime: Handle::current(),
        seats: Arc::new(Semaphore::new(max.min(Semaphore::MAX_PERMITS))),
        frozen: ConnectionServer::new(apps.frozen, tls, config, phases.clone()),
        frozen_seats: Arc::new(Semaphore::new(FROZEN_CONNECTIONS_MAX)),
        pulse,
        phases: phases.clone(),
        connections: connections.clone(),
        cut: cut.clone(),
        threads: threads.clone(),
    };
    Ok(Listening {
        phases,
        connections,
        cut,
        threads,
        watch: Watch::begin(context)?,
        is_activated: listener.is_activated,
        server,
        #[cfg(unix)]
        file: listener.file,
    })
}

impl Listening {
    /// Makes the file of a Unix socket this server's, which removes it at its end.
    pub(in crate::server) fn own_file(&mut self) {
        #[cfg(unix)]
        self.file.iter_mut().for_each(|file| file.set_own(true));
    }

    /// Returns whether connections can wait in the system for the next server.
    pub(in crate::server) fn is_activated(&self) -> bool {
        self.is_activated
    }

    /// Accepts no connections from now on, because another process has the socket and its file.
    /// Connections end after their next answer.
    pub(in crate::server) fn leave(&mut self) {
        self.phases.leaving.cancel();
        #[cfg(unix)]
        self.file.iter_mut().for_each(|file| file.set_own(false));
    }

    /// Serves `routes` to the process that takes over, until that process or this server ends. Its
    /// requests are not those of clients: a drain does not wait for them.
    #[cfg(unix)]
    pub(in crate::server) fn serve_process(
        &self,
        link: tokio::net::UnixStream,
        routes: axum::Router,
    ) -> impl Future<Output = ()> + Send + 'static {
        let closing = self.phases.closing.clone();
        let server = self.server.for_process(CurrentRoutes::new(routes), closing);
        async move { server.serve(Box::new(link)).await }
    }

    /// Completes when the requests of a server that leaves have ended, and its connections with
    /// their last answers. Connections that stay silent are waited for a little, because a request
    /// on them may cross with their end.
    pub(in crate::server) async fn left(&self) {
        self.drained().await;
        self.connections.close();
        // The rest ends when the server closes.
        let limit = if self.is_activated { RESTART_SILENCE_LIMIT } else { SILENCE_LIMIT };
        let _ = timeout(limit, self.connections.wait()).await;
    }

    /// Completes when all requests from before the drain have ended. The server goes on to accept
    /// connections.
    pub(in crate::server) async fn drained(&self) {
        self.phases.drained().await;
    }

    /// Ends connections and the accept loop, within two seconds.
    pub(in crate::server) async fn close(self) {
        self.phases.closing.cancel();
        self.watch.end();
        self.connections.close();
        self.threads.close();
        let ended = async {
            self.connections.wait().await;
            self.threads.wait().await;
        };
        if timeout(CLOSE_LIMIT, ended).await.is_err() {
            tracing::debug!("connections are cut off at the end");
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.phases.closing.cancel();
        self.cut.cancel();
    }
}
