//! The key of a journal, from a file.

use std::{
    fmt,
    io::{Error, ErrorKind, Result},
    path::Path,
    sync::Arc,
};

use chacha20poly1305::{KeyInit as _, XChaCha20Poly1305};

use crate::files;

const KEY_BYTES: usize = 32;

/// The key that encrypts a journal.
#[derive(Clone)]
pub(crate) struct JournalKey(Arc<XChaCha20Poly1305>);

impl JournalKey {
    pub(super) fn new(bytes: &[u8; KEY_BYTES]) -> Self {
        Self(Arc::new(XChaCha20Poly1305::new(bytes.into())))
    }

    /// Reads a file of 32 bytes, or of 64 hexadecimal digits.
    ///
    /// # Errors
    /// The system's errors. [`ErrorKind::PermissionDenied`] if every user of the machine can read
    /// the file, and [`ErrorKind::InvalidData`] if it holds no key.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let fault = |kind, why: &str| {
            Error::new(kind, format!("journal_key_file {}: {why}", path.display()))
        };
        let content = files::read(path).map_err(|error| fault(error.kind(), &error.to_string()))?;
        if is_public(path)? {
            let why = "every user of the machine can read it; expected `chmod o-rwx`";
            return Err(fault(ErrorKind::PermissionDenied, why));
        }
        let bytes = match <[u8; KEY_BYTES]>::try_from(content.as_slice()) {
            Ok(bytes) => Some(bytes),
            Err(_) => from_hex(content.trim_ascii()),
        };
        let why = "expected 32 bytes, or 64 hexadecimal digits, as `openssl rand -hex 32` writes";
        bytes.map(|bytes| Self::new(&bytes)).ok_or_else(|| fault(ErrorKind::InvalidData, why))
    }

    pub(super) fn cipher(&self) -> &XChaCha20Poly1305 {
        &self.0
    }
}

impl fmt::Debug for JournalKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JournalKey")
    }
}

fn from_hex(text: &[u8]) -> Option<[u8; KEY_BYTES]> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let mut bytes = [0; KEY_BYTES];
    if text.len() != 2 * KEY_BYTES {
        return None;
    }
    for (byte, [high, low]) in bytes.iter_mut().zip(text.as_chunks().0) {
        *byte = u8::try_from(16 * digit(*high)? + digit(*low)?).ok()?;
    }
    Some(bytes)
}

#[cfg(unix)]
fn is_public(path: &Path) -> Result<bool> {
    use std::os::unix::fs::PermissionsExt as _;
    Ok(std::fs::metadata(path)?.permissions().mode() & 0o007 != 0)
}

#[cfg(not(unix))]
#[expect(clippy::unnecessary_wraps, reason = "as on Unix")]
fn is_public(_: &Path) -> Result<bool> {
    Ok(false)
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;

    fn read(content: &[u8], mode: u32) -> Result<JournalKey> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), content).unwrap();
        fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).unwrap();
        JournalKey::read(file.path())
    }

    #[test]
    fn a_key_has_32_bytes_and_is_no_public_file() {
        read(&[7; 32], 0o600).unwrap();
        read(format!("{}\n", "0aF1".repeat(16)).as_bytes(), 0o440).unwrap();
        for wrong in [&b""[..], &[7; 31], &[b'g'; 64], &[b'0'; 66]] {
            let error = read(wrong, 0o600).unwrap_err();
            assert!(error.to_string().contains("64 hexadecimal digits"), "{error}");
        }
        let error = read(&[7; 32], 0o644).unwrap_err();
        assert!(error.to_string().contains("chmod"), "{error}");
        let error = JournalKey::read(Path::new("/nowhere/key")).unwrap_err();
        assert!(error.to_string().contains("/nowhere/key"), "{error}");
    }
}
