//! A Unix socket to listen on: a file that is there only as long as somebody listens.

use std::{
    fs::{self, Permissions},
    io,
    os::unix::{
        fs::{FileTypeExt, PermissionsExt},
        net::UnixStream as Probe,
    },
    path::{Path, PathBuf},
};

use tokio::net::{UnixListener, UnixStream};

use crate::config::FileMode;

/// Dropped, it takes its file with it.
#[derive(Debug)]
pub(super) struct UnixSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl UnixSocket {
    /// Listens at `path`. What a server left behind that did not end well is replaced.
    ///
    /// # Errors
    /// If another server listens there, or something that is no socket is in the way.
    pub(super) fn bind(path: &Path, mode: FileMode) -> io::Result<Self> {
        if is_stale(path)? {
            fs::remove_file(path)?;
        }
        let listener = UnixListener::bind(path)?;
        let socket = Self { listener, path: path.to_owned() };
        fs::set_permissions(path, Permissions::from_mode(mode.0))?;
        Ok(socket)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) async fn accept(&self) -> io::Result<UnixStream> {
        self.listener.accept().await.map(|(stream, _)| stream)
    }
}

impl Drop for UnixSocket {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::debug!(%error, path = ?self.path, "the socket's file cannot be removed");
        }
    }
}

/// Whether there is a socket that nobody listens on.
fn is_stale(path: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "a file is there"));
        }
        Ok(_) => {}
    }
    match Probe::connect(path) {
        Ok(_) => Err(io::Error::new(io::ErrorKind::AddrInUse, "another server listens there")),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(true),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODE: FileMode = FileMode(0o660);

    #[tokio::test]
    async fn the_file_lives_as_long_as_its_listener() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let socket = UnixSocket::bind(&path, MODE).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
        let taken = UnixSocket::bind(&path, MODE).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        assert!(path.exists(), "a refused server takes nothing away");
        drop(socket);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_stale_socket_is_replaced_and_nothing_else_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        drop(UnixSocket::bind(&path, MODE).unwrap());
        fs::write(&path, "precious").unwrap();
        assert!(UnixSocket::bind(&path, MODE).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    }
}
