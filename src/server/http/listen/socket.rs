//! Listening sockets and connections of both kinds, which move from one runtime to another.

use std::io;
#[cfg(all(unix, feature = "cli"))]
use std::os::fd::{AsFd, OwnedFd};
#[cfg(unix)]
use std::os::unix::net as unix;

#[cfg(all(unix, feature = "cli"))]
use nix::sys::socket::{getsockopt, sockopt::AcceptConn};
#[cfg(unix)]
use tokio::net::{UnixListener, UnixStream};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
};

use super::Address;

/// A connection of either kind.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}
pub(super) type Connection = Box<dyn Stream>;

/// A listening socket that belongs to no runtime.
#[derive(Debug)]
pub(super) enum Socket {
    Tcp(std::net::TcpListener),
    #[cfg(unix)]
    Unix(unix::UnixListener),
}

/// A listening socket that belongs to the runtime it was made on.
#[derive(Debug)]
pub(super) enum Acceptor {
    Tcp(TcpListener),
    #[cfg(unix)]
    Unix(UnixListener),
}

/// A connection that belongs to no runtime.
pub(super) enum Peer {
    Tcp(std::net::TcpStream),
    #[cfg(unix)]
    Unix(unix::UnixStream),
}

impl Socket {
    /// Returns a socket that another process has opened.
    ///
    /// # Errors
    /// If it is no socket of TCP or Unix, or does not listen.
    #[cfg(all(unix, feature = "cli"))]
    pub(super) fn of_another(socket: OwnedFd) -> io::Result<Self> {
        if !getsockopt(&socket, AcceptConn)? {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the socket does not listen"));
        }
        let tcp = std::net::TcpListener::from(socket);
        // The system may have opened it to block, which an acceptor must not.
        tcp.set_nonblocking(true)?;
        if tcp.local_addr().is_ok() {
            return Ok(Self::Tcp(tcp));
        }
        let unix = unix::UnixListener::from(OwnedFd::from(tcp));
        unix.local_addr()?;
        Ok(Self::Unix(unix))
    }

    /// Returns another handle to the same socket.
    pub(super) fn try_clone(&self) -> io::Result<Self> {
        Ok(match self {
            Self::Tcp(socket) => Self::Tcp(socket.try_clone()?),
            #[cfg(unix)]
            Self::Unix(socket) => Self::Unix(socket.try_clone()?),
        })
    }

    /// Moves it to the current runtime.
    pub(super) fn into_acceptor(self) -> io::Result<Acceptor> {
        Ok(match self {
            Self::Tcp(socket) => Acceptor::Tcp(TcpListener::from_std(socket)?),
            #[cfg(unix)]
            Self::Unix(socket) => Acceptor::Unix(UnixListener::from_std(socket)?),
        })
    }
}

impl Acceptor {
    /// Removes it from its runtime.
    pub(super) fn into_socket(self) -> io::Result<Socket> {
        Ok(match self {
            Self::Tcp(listener) => Socket::Tcp(listener.into_std()?),
            #[cfg(unix)]
            Self::Unix(listener) => Socket::Unix(listener.into_std()?),
        })
    }

    /// Returns another handle to the same socket, for another process.
    #[cfg(all(unix, feature = "cli"))]
    pub(super) fn handle(&self) -> io::Result<OwnedFd> {
        match self {
            Self::Tcp(listener) => listener.as_fd().try_clone_to_owned(),
            Self::Unix(listener) => listener.as_fd().try_clone_to_owned(),
        }
    }

    /// Returns the address where it listens.
    pub(super) fn address(&self) -> io::Result<Address> {
        match self {
            Self::Tcp(listener) => listener.local_addr().map(Address::Tcp),
            #[cfg(unix)]
            Self::Unix(listener) => {
                let address = listener.local_addr()?;
                let path = address.as_pathname().unwrap_or("(without a file)".as_ref());
                Ok(Address::Unix(path.to_owned()))
            }
        }
    }

    /// Returns the next connection.
    pub(super) async fn accept(&self) -> io::Result<Peer> {
        Ok(match self {
            Self::Tcp(listener) => Peer::Tcp(listener.accept().await?.0.into_std()?),
            #[cfg(unix)]
            Self::Unix(listener) => Peer::Unix(listener.accept().await?.0.into_std()?),
        })
    }
}

impl Peer {
    /// Moves it to the current runtime.
    pub(super) fn open(self) -> io::Result<Connection> {
        match self {
            Self::Tcp(stream) => {
                let stream = TcpStream::from_std(stream)?;
                // Tokens are small packets. They must not wait to be joined with later ones.
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "TCP_NODELAY cannot be set");
                }
                Ok(Box::new(stream))
            }
            #[cfg(unix)]
            Self::Unix(stream) => Ok(Box::new(UnixStream::from_std(stream)?)),
        }
    }
}
