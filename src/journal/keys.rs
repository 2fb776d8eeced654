//! The keys of encrypted files, from a file.

use std::{
    fmt,
    io::{Error, ErrorKind, Result},
    path::Path,
    sync::Arc,
};

use chacha20poly1305::{KeyInit as _, XChaCha20Poly1305};

use crate::files;

const KEY_BYTES: usize = 32;

/// The keys of encrypted files. The first one encrypts, and each of them decrypts.
#[derive(Clone)]
pub(crate) struct Keys {
    first: Arc<XChaCha20Poly1305>,
    others: Arc<[XChaCha20Poly1305]>,
}

impl Keys {
    pub(super) fn new(first: &[u8; KEY_BYTES], others: &[[u8; KEY_BYTES]]) -> Self {
        let cipher = |bytes: &[u8; KEY_BYTES]| XChaCha20Poly1305::new(bytes.into());
        Self { first: Arc::new(cipher(first)), others: others.iter().map(cipher).collect() }
    }

    /// Reads a file with 32 bytes, or with lines of 64 hexadecimal digits. `setting` names the file
    /// in errors.
    ///
    /// # Errors
    /// The system's errors. [`ErrorKind::PermissionDenied`] if every user of the machine can read
    /// the file, and [`ErrorKind::InvalidData`] if it holds no key.
    pub(crate) fn read(path: &Path, setting: &str) -> Result<Self> {
        let fault =
            |kind, why: &str| Error::new(kind, format!("{setting} {}: {why}", path.display()));
        let content = files::read(path).map_err(|error| fault(error.kind(), &error.to_string()))?;
        if is_public(path)? {
            let why = "every user of the machine can read it; expected `chmod o-rwx`";
            return Err(fault(ErrorKind::PermissionDenied, why));
        }
        let keys = match <[u8; KEY_BYTES]>::try_from(content.as_slice()) {
            Ok(bytes) => Some(vec![bytes]),
            Err(_) => from_lines(content.trim_ascii()),
        };
        let why = "expected 32 bytes, or lines of 64 hexadecimal digits, as `openssl rand -hex 32` \
                   writes";
        match keys.as_deref() {
            Some([first, others @ ..]) => Ok(Self::new(first, others)),
            _ => Err(fault(ErrorKind::InvalidData, why)),
        }
    }

    /// Returns the key that encrypts.
    pub(super) fn first(&self) -> &XChaCha20Poly1305 {
        &self.first
    }

    /// Returns all keys.
    pub(super) fn all(&self) -> impl Iterator<Item = &XChaCha20Poly1305> {
        std::iter::once(&*self.first).chain(self.others.iter())
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keys")
    }
}

/// Returns the keys of a file with one in each line.
fn from_lines(text: &[u8]) -> Option<Vec<[u8; KEY_BYTES]>> {
    text.split(|byte| *byte == b'\n').map(|line| from_hex(line.trim_ascii())).collect()
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

    fn read(content: &[u8], mode: u32) -> Result<Keys> {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), content).unwrap();
        fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).unwrap();
        Keys::read(file.path(), "key_file")
    }

    #[test]
    fn a_key_has_32_bytes_and_is_no_public_file() {
        read(&[7; 32], 0o600).unwrap();
        read(format!("{}\n", "0aF1".repeat(16)).as_bytes(), 0o440).unwrap();
        let lines = [b'0'; 64].into_iter().chain(*b"\r\n").chain([b'1'; 64]).chain(*b"\n");
        let lines: Vec<u8> = lines.collect();
        assert_eq!(read(&lines, 0o600).unwrap().all().count(), 2);
        let half = &lines[..90];
        for wrong in [&b""[..], &[7; 31], &[b'g'; 64], &[b'0'; 66], half] {
            let error = read(wrong, 0o600).unwrap_err();
            assert!(error.to_string().contains("64 hexadecimal digits"), "{error}");
        }
        let error = read(&[7; 32], 0o644).unwrap_err();
        assert!(error.to_string().contains("chmod"), "{error}");
        let error = Keys::read(Path::new("/nowhere/key"), "key_file").unwrap_err();
        assert!(error.to_string().starts_with("key_file /nowhere/key: "), "{error}");
    }
}
