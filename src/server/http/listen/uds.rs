//! A Unix socket to listen on. Its file exists only as long as a server listens.

use std::{
    fs::{self, File, Permissions, TryLockError},
    io,
    os::unix::{
        fs::{FileTypeExt, MetadataExt, PermissionsExt},
        net::UnixStream as Probe,
    },
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::{
    net::{UnixListener, UnixSocket},
    time::sleep,
};

use crate::{config::FileMode, files};

/// Connections that the system queues until they are accepted.
const BACKLOG: u32 = 1024;
/// Tries to lock a folder in which another server starts to listen, and the pause between two.
const LOCK_TRIES: u32 = 40;
const LOCK_INTERVAL: Duration = Duration::from_millis(50);

/// Listens at `path`. Replaces the file of a server that did not end cleanly.
///
/// # Errors
/// If another server listens there, or if a file that is no socket has this path.
pub(super) async fn bind(path: &Path, mode: FileMode) -> io::Result<(UnixListener, SocketFile)> {
    let _lock = lock_folder(path).await?;
    let (socket, file) = prepare(path, mode)?;
    Ok((socket.listen(BACKLOG)?, file))
}

/// Creates a socket with its file at `path`. The file has its mode before the first client can
/// connect, because the system refuses connections until the socket listens.
fn prepare(path: &Path, mode: FileMode) -> io::Result<(UnixSocket, SocketFile)> {
    if is_stale(path)? {
        fs::remove_file(path)?;
    }
    let socket = UnixSocket::new_stream()?;
    socket.bind(path)?;
    let file = SocketFile::at(path)?;
    fs::set_permissions(path, Permissions::from_mode(mode.0))?;
    Ok((socket, file))
}

/// The file of a socket. If it is this process's own, it is removed on drop.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
    is_own: bool,
}

impl SocketFile {
    fn at(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), identity: identity(path)?, is_own: true })
    }

    /// Returns the file of a socket that another process opened, and still owns.
    #[cfg(any(test, feature = "cli"))]
    pub(super) fn of_another(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), identity: identity(path)?, is_own: false })
    }

    /// Makes it the file of this process, or of another one.
    pub(super) fn set_own(&mut self, is_own: bool) {
        self.is_own = is_own;
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if !self.is_own {
            return;
        }
        // The path may lead to the file of a later server.
        let removed = match identity(&self.path) {
            Ok(there) if there == self.identity => fs::remove_file(&self.path),
            Ok(_) => return,
            Err(error) => Err(error),
        };
        if let Err(error) = removed {
            tracing::debug!(%error, path = ?self.path, "the socket's file cannot be removed");
        }
    }
}

/// Returns the numbers that identify the file at `path`.
fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let found = fs::symlink_metadata(path)?;
    Ok((found.dev(), found.ino()))
}

/// Keeps other servers from taking a path in the same folder until the returned file is dropped. A
/// socket that does not listen yet looks stale to them. Returns `None` if the folder cannot be
/// locked.
async fn lock_folder(path: &Path) -> io::Result<Option<File>> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = files::open_folder(folder.unwrap_or(Path::new(".")));
    let Ok(folder) = folder else { return Ok(None) };
    for _ in 0..LOCK_TRIES {
        match folder.try_lock() {
            Ok(()) => return Ok(Some(folder)),
            Err(TryLockError::WouldBlock) => sleep(LOCK_INTERVAL).await,
            Err(TryLockError::Error(_)) => return Ok(None),
        }
    }
    Err(io::Error::new(io::ErrorKind::WouldBlock, "another process has locked its folder"))
}

/// Returns whether there is a socket on which no server listens.
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
    use std::os::unix::fs::symlink;

    use super::*;

    const MODE: FileMode = FileMode(0o660);

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[tokio::test]
    async fn the_mode_is_set_before_the_first_connection() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let (socket, _file) = prepare(&path, FileMode(0o600)).unwrap();
        assert_eq!(mode(&path), 0o600);
        let refused = Probe::connect(&path).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        let _listener = socket.listen(BACKLOG).unwrap();
        Probe::connect(&path).unwrap();
    }

    #[tokio::test]
    async fn the_file_lives_as_long_as_its_listener() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let bound = bind(&path, MODE).await.unwrap();
        assert_eq!(mode(&path), 0o660);
        let taken = bind(&path, MODE).await.unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AddrInUse);
        assert!(path.exists(), "a refused server takes nothing away");
        drop(bound);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn the_file_belongs_to_one_process_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let (_listener, mut first) = bind(&path, MODE).await.unwrap();
        let mut second = SocketFile::of_another(&path).unwrap();
        drop(SocketFile::of_another(&path).unwrap());
        assert!(path.exists(), "it is another's");
        second.set_own(true);
        first.set_own(false);
        drop(first);
        assert!(path.exists(), "it was given away");
        drop(second);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_stale_socket_is_replaced_and_nothing_else_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        drop(bind(&path, MODE).await.unwrap());
        fs::write(&path, "precious").unwrap();
        assert!(bind(&path, MODE).await.is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
        let link = folder.path().join("link");
        symlink(folder.path().join("elsewhere"), &link).unwrap();
        assert!(bind(&link, MODE).await.is_err(), "a link is not followed");
    }

    #[tokio::test]
    async fn the_file_of_a_later_server_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        let first = bind(&path, MODE).await.unwrap();
        fs::rename(&path, folder.path().join("moved")).unwrap();
        let second = bind(&path, MODE).await.unwrap();
        drop(first);
        assert!(path.exists());
        drop(second);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn servers_that_start_at_once_get_one_socket_between_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let held = lock_folder(&path).await.unwrap();
        assert!(held.is_some());
        let (first, second) = tokio::join!(bind(&path, MODE), async {
            sleep(LOCK_INTERVAL).await;
            assert!(Probe::connect(&path).is_err(), "the first waits for the lock");
            drop(held);
            bind(&path, MODE).await
        });
        assert_eq!(usize::from(first.is_ok()) + usize::from(second.is_ok()), 1);
        Probe::connect(&path).unwrap();
    }
}
