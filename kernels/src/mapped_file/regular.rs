//! Opening of regular files. Rejects files that may block, or have an effect, when they are opened.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::path::Path;

/// Opens the regular file `path` for reading. Follows symlinks, because the model folders of
/// Hugging Face's cache consist of them.
///
/// # Errors
/// The system's error; [`io::ErrorKind::InvalidInput`] for a folder, a FIFO or a device.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.read(true);
    without_waiting(&mut options);
    let file = options.open(path)?;
    require_regular(&file)?;
    Ok(file)
}

/// Returns the metadata of `file`, which must be a regular one. It comes from the open descriptor,
/// because the path may lead to another file by now.
///
/// # Errors
/// As [`open_regular`].
pub fn require_regular(file: &File) -> io::Result<Metadata> {
    let metadata = file.metadata()?;
    if metadata.is_file() {
        return Ok(metadata);
    }
    let reason = format!("it is {}; expected a regular file", kind(&metadata));
    Err(io::Error::new(io::ErrorKind::InvalidInput, reason))
}

/// Makes opening a FIFO return at once. By default it waits for the other end.
#[cfg(unix)]
fn without_waiting(options: &mut OpenOptions) {
    use std::os::unix::fs::OpenOptionsExt;
    options.custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
}

/// Does nothing: on other systems, opening does not wait.
#[cfg(not(unix))]
fn without_waiting(_: &mut OpenOptions) {}

#[cfg(unix)]
fn kind(metadata: &Metadata) -> &'static str {
    use std::os::unix::fs::FileTypeExt;
    let kind = metadata.file_type();
    match () {
        () if kind.is_dir() => "a folder",
        () if kind.is_fifo() => "a FIFO",
        () if kind.is_socket() => "a socket",
        () => "a device",
    }
}

#[cfg(not(unix))]
fn kind(metadata: &Metadata) -> &'static str {
    if metadata.is_dir() { "a folder" } else { "a device" }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_fifo_a_device_and_a_folder_are_rejected_at_once() {
        let fifo = std::env::temp_dir().join(format!("regular-fifo-{}", std::process::id()));
        let made = std::process::Command::new("mkfifo").arg(&fifo).status().unwrap();
        assert!(made.success());
        for (path, kind) in
            [(fifo.as_path(), "a FIFO"), ("/dev/null".as_ref(), "a device"), ("/".as_ref(), "a f")]
        {
            let error = open_regular(path).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            assert!(error.to_string().starts_with(&format!("it is {kind}")), "{error}");
        }
        std::fs::remove_file(&fifo).unwrap();
    }

    #[test]
    fn a_symlink_to_a_regular_file_is_followed() {
        let folder = std::env::temp_dir().join(format!("regular-link-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (blob, link) = (folder.join("blob"), folder.join("model.safetensors"));
        std::fs::write(&blob, "weights").unwrap();
        std::os::unix::fs::symlink("blob", &link).unwrap();
        assert_eq!(io::read_to_string(open_regular(&link).unwrap()).unwrap(), "weights");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
