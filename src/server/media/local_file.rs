//! Local files as media: only below the folder that the operator allows.

use std::{
    io::{self, Read},
    path::{Path, PathBuf},
};

use crate::files;

/// Returns the content of the file at a URL; `rest` is the part behind `file:`. It blocks.
///
/// # Errors
/// The reason for the client. It does not tell whether a file outside of `folder` exists.
pub(super) fn read(folder: &Path, rest: &str, bytes_max: usize) -> Result<Vec<u8>, String> {
    let path = path(rest)?;
    let outside = || {
        let (path, folder) = (path.display(), folder.display());
        format!("The file path {path} must be a subpath of `--allowed-local-media-path {folder}`.")
    };
    let folder = folder.canonicalize().map_err(|_| outside())?;
    let real = path.canonicalize().map_err(|_| outside())?;
    if real == folder || !real.starts_with(&folder) {
        return Err(outside());
    }
    let failed = |error: io::Error| format!("the file {} cannot be read: {error}", path.display());
    let file = files::open(&real).map_err(failed)?;
    let len = file.metadata().map_err(failed)?.len();
    let most = bytes_max as u64;
    let too_large = || format!("the file has more than {bytes_max} bytes (media_max_bytes)");
    if len > most {
        return Err(too_large());
    }
    let mut content = Vec::new();
    file.take(most + 1).read_to_end(&mut content).map_err(failed)?;
    if content.len() > bytes_max {
        return Err(too_large());
    }
    Ok(content)
}

/// Returns the path of a file URL.
fn path(rest: &str) -> Result<PathBuf, String> {
    let path = match rest.strip_prefix("//") {
        None => rest,
        Some(rest) => match rest.find('/') {
            Some(0) => rest,
            Some(slash) if rest[..slash].eq_ignore_ascii_case("localhost") => &rest[slash..],
            _ => return Err("a file URL must not name another machine".to_owned()),
        },
    };
    if !path.starts_with('/') {
        return Err("a file URL must have an absolute path".to_owned());
    }
    let bytes = unescaped(path.as_bytes()).ok_or("the file URL has a wrong % escape")?;
    let path = String::from_utf8(bytes).map_err(|_| "the path of the file URL is not UTF-8")?;
    match path.contains('\0') {
        true => Err("the path of the file URL has a zero byte".to_owned()),
        false => Ok(PathBuf::from(path)),
    }
}

/// Returns the bytes that `%` escapes stand for.
fn unescaped(escaped: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(escaped.len());
    let mut rest = escaped;
    while let [byte, behind @ ..] = rest {
        (rest, bytes) = match (byte, behind) {
            (b'%', [high, low, behind @ ..]) => {
                let digit = |byte: &u8| char::from(*byte).to_digit(16);
                bytes.push((digit(high)? << 4 | digit(low)?) as u8);
                (behind, bytes)
            }
            (b'%', _) => return None,
            _ => {
                bytes.push(*byte);
                (behind, bytes)
            }
        };
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;

    #[test]
    fn only_files_below_the_folder_are_read() {
        let root = TempDir::new().unwrap();
        let folder = root.path().join("media");
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("a b.png"), b"picture").unwrap();
        fs::write(root.path().join("secret"), b"secret").unwrap();
        let at = |path: &str| {
            let url = format!("//{}/{path}", root.path().display());
            read(&folder, &url, 10)
        };
        assert_eq!(at("media/a%20b.png").unwrap(), b"picture");
        for outside in ["secret", "media/../secret", "media/%2e%2e/secret", "none", "media"] {
            let error = at(outside).unwrap_err();
            assert!(error.contains("must be a subpath"), "{outside}: {error}");
        }
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink(root.path().join("secret"), folder.join("link")).unwrap();
            assert!(at("media/link").unwrap_err().contains("must be a subpath"));
        }
        assert!(read(&folder, &format!("//{}/a b.png", folder.display()), 3).is_err());
        for wrong in ["//host/x", "x", "///%", "///%zz", "///%00", "///%ff"] {
            assert!(read(&folder, wrong, 10).is_err(), "{wrong}");
        }
    }
}
