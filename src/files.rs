//! The only place where files are opened, so that all of them are opened with the same care.
//!
//! An input must be a regular file: a FIFO would keep its reader waiting for ever, and a device has
//! no end. Symlinks to it are followed. Only inputs that a person may pipe in on purpose are opened
//! by [`open_stream`]. Outputs are never written through a symlink: a new file is created under a
//! name that did not exist, and renamed.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
};

use playhouse_kernels::{fallible, open_regular, require_regular};

/// Returns the path of this program. On Linux it names the running program even if its file was
/// replaced.
///
/// # Errors
/// The system's errors.
pub(crate) fn this_program() -> io::Result<PathBuf> {
    let running = PathBuf::from("/proc/self/exe");
    if cfg!(target_os = "linux") && running.exists() {
        Ok(running)
    } else {
        std::env::current_exe()
    }
}

/// Opens a regular file to read it.
///
/// # Errors
/// As [`open_regular`].
pub(crate) fn open(path: &Path) -> io::Result<File> {
    open_regular(path)
}

/// Opens a folder, to lock it.
///
/// # Errors
/// [`io::ErrorKind::NotADirectory`] if it is not a folder, and the system's other errors.
#[cfg(unix)]
pub(crate) fn open_folder(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    File::options().read(true).custom_flags(libc::O_DIRECTORY | libc::O_NONBLOCK).open(path)
}

/// Returns the content of the regular file `path`.
///
/// # Errors
/// As [`open`]; [`io::ErrorKind::OutOfMemory`] if there is no memory for it.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut file = open(path)?;
    let mut contents = Vec::new();
    fallible(|| file.read_to_end(&mut contents))?;
    Ok(contents)
}

/// Returns the text in the regular file `path`.
///
/// # Errors
/// As [`read`]; [`io::ErrorKind::InvalidData`] if it is not UTF-8.
pub(crate) fn read_to_string(path: &Path) -> io::Result<String> {
    into_text(read(path)?)
}

/// Opens an input that may be a pipe or a device on purpose, for example `<(command)` of a shell.
/// Waits until a process opens the other end.
///
/// # Errors
/// The system's errors.
pub(crate) fn open_stream(path: &Path) -> io::Result<File> {
    File::open(path)
}

/// Returns the whole text of this input.
///
/// # Errors
/// As [`open_stream`] and [`read_to_string`].
pub(crate) fn read_stream(path: &Path) -> io::Result<String> {
    let mut contents = Vec::new();
    let mut file = open_stream(path)?;
    fallible(|| file.read_to_end(&mut contents))?;
    into_text(contents)
}

/// Opens an output that is a pipe or a device on purpose.
///
/// # Errors
/// The system's errors.
pub(crate) fn open_stream_to_write(path: &Path) -> io::Result<File> {
    File::options().append(true).open(path)
}

fn into_text(contents: Vec<u8>) -> io::Result<String> {
    String::from_utf8(contents)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.utf8_error()))
}

/// Puts `contents` at `path`. A concurrent reader gets the old file or the complete new one. A
/// symlink at `path` is replaced, not followed.
///
/// # Errors
/// The system's errors, after which the old file still exists.
pub(crate) fn replace(path: &Path, contents: &[u8]) -> io::Result<()> {
    replace_with(path, |file| file.write_all(contents))
}

/// Does the same with contents that `write` writes.
///
/// # Errors
/// As [`replace`], and those of `write`.
pub(crate) fn replace_with(
    path: &Path,
    write: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}-{number}.new", std::process::id()));
    let new = Unfinished(PathBuf::from(name));
    // A dead process of the same number may have left a file of this name.
    let _ = fs::remove_file(&new.0);
    let mut file = create_new(&new.0)?;
    write(&mut file)?;
    fs::rename(&new.0, path)
}

/// Removes the file unless it was renamed.
struct Unfinished(PathBuf);

impl Drop for Unfinished {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Creates a file at a path where nothing exists, not even a symlink.
///
/// # Errors
/// [`io::ErrorKind::AlreadyExists`], and the system's other errors.
pub(crate) fn create_new(path: &Path) -> io::Result<File> {
    File::options().write(true).create_new(true).open(path)
}

/// Opens a regular file to write in it with `options`, which may also create it. Rejects a symlink,
/// and a file with a second name.
///
/// # Errors
/// The system's errors; [`io::ErrorKind::InvalidInput`] for anything but a regular file with one
/// name.
pub(crate) fn open_to_write(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY);
    }
    let file = options.open(path).map_err(|error| match path.is_symlink() {
        true => io::Error::new(error.kind(), "it is a symlink, through which nothing is written"),
        false => error,
    })?;
    let metadata = require_regular(&file)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        if metadata.nlink() > 1 {
            let reason = "it has another name, under which it would change as well";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
    }
    #[cfg(not(unix))]
    let _ = metadata;
    Ok(file)
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn what_is_replaced_is_whole_and_no_link_is_followed() {
        let folder = tempfile::TempDir::new().unwrap();
        let (precious, link) = (folder.path().join("precious"), folder.path().join("cache.json"));
        fs::write(&precious, "precious").unwrap();
        symlink(&precious, &link).unwrap();
        let failed = replace_with(&link, |_| Err(io::ErrorKind::StorageFull.into()));
        assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert!(link.is_symlink());
        replace(&link, b"new").unwrap();
        assert_eq!(read(&link).unwrap(), b"new");
        assert!(!link.is_symlink());
        assert_eq!(read_to_string(&precious).unwrap(), "precious");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing is left behind");
    }

    #[test]
    fn what_is_opened_to_write_has_one_name_and_is_no_link() {
        let folder = tempfile::TempDir::new().unwrap();
        let (precious, link) = (folder.path().join("precious"), folder.path().join("link"));
        fs::write(&precious, "precious").unwrap();
        symlink(&precious, &link).unwrap();
        let append = |path: &Path| open_to_write(path, File::options().append(true).create(true));
        assert!(append(&link).is_err(), "a symlink");
        assert_eq!(append("/dev/null".as_ref()).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        fs::hard_link(&precious, folder.path().join("second")).unwrap();
        assert_eq!(append(&precious).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(read(&precious).unwrap(), b"precious");
        append(&folder.path().join("new")).unwrap();
        assert!(create_new(&link).is_err(), "nothing is made where a link leads");
    }

    #[test]
    fn a_pipe_is_read_only_where_it_may_be_one() {
        let folder = tempfile::TempDir::new().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert_eq!(read(&pipe).unwrap_err().to_string(), "it is a FIFO; expected a regular file");
        let writer = std::thread::spawn({
            let pipe = pipe.clone();
            move || fs::write(pipe, "piped").unwrap()
        });
        assert_eq!(read_stream(&pipe).unwrap(), "piped");
        writer.join().unwrap();
    }
}
