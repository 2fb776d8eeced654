//! Whether a file on disk is the hub's file. `hf-hub` checks neither sizes nor hashes.

use std::{
    fs,
    io::{self, Read},
    path::Path,
};

use sha2::{Digest, Sha256};

use super::fetch::HubFile;

/// Bytes that are read at once.
const CHUNK: usize = 1 << 20;

/// The result of a check.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is the hub's file.
    Right,
    /// Its end is missing.
    Short,
    /// It is another file, with the difference.
    Wrong(String),
}

/// Compares the file at `path` with the hub's. Without a hash in the listing, the hash is the name
/// of a large file's blob in the cache.
///
/// # Errors
/// The system's errors.
pub(super) fn check(path: &Path, file: &HubFile) -> io::Result<Verdict> {
    let size = fs::metadata(path)?.len();
    if let Some(expected) = file.size.filter(|expected| *expected != size) {
        return Ok(match size < expected {
            true => Verdict::Short,
            false => Verdict::Wrong(format!("it has {size} bytes, and the hub's {expected}")),
        });
    }
    let Some(expected) = file.sha256.clone().or_else(|| name_of_blob(path)) else {
        return Ok(Verdict::Right);
    };
    let actual = sha256(path)?;
    Ok(match actual == expected {
        true => Verdict::Right,
        false => Verdict::Wrong(format!("its SHA-256 is {actual}, and the hub's {expected}")),
    })
}

/// Returns the name of the blob behind a link, if it is a SHA-256.
fn name_of_blob(path: &Path) -> Option<String> {
    let blob = path.canonicalize().ok()?;
    let name = blob.file_name()?.to_str()?;
    let is_hash = name.len() == 64 && name.bytes().all(|b| b.is_ascii_hexdigit());
    is_hash.then(|| name.to_lowercase())
}

fn sha256(path: &Path) -> io::Result<String> {
    let mut file = crate::files::open(path)?;
    let (mut hash, mut chunk) = (Sha256::new(), vec![0; CHUNK]);
    loop {
        let len = file.read(&mut chunk)?;
        if len == 0 {
            let hash = hash.finalize();
            return Ok(hash.iter().map(|byte| format!("{byte:02x}")).collect());
        }
        hash.update(chunk.get(..len).unwrap_or_default());
    }
}

/// Removes a file of a snapshot together with its blob.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    if let Ok(blob) = path.canonicalize() {
        fs::remove_file(blob)?;
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Puts the name `path` of a snapshot on a blob. Returns whether this system can do it.
#[cfg(unix)]
pub(super) fn link(blob: &str, path: &Path, file: &HubFile) -> io::Result<bool> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    // From `snapshots/COMMIT/FILE` to `blobs/BLOB`, both in one folder.
    let up = "../".repeat(2 + file.path.matches('/').count());
    std::os::unix::fs::symlink(format!("{up}blobs/{blob}"), path).map(|()| true)
}

#[cfg(not(unix))]
pub(super) fn link(_: &str, _: &Path, _: &HubFile) -> io::Result<bool> {
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(size: u64, sha256: Option<&str>) -> HubFile {
        let sha256 = sha256.map(str::to_owned);
        HubFile { path: "a/model.safetensors".to_owned(), size: Some(size), sha256, blob: None }
    }

    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn size_and_hash_decide() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("blob");
        std::fs::write(&path, "abc").unwrap();
        assert_eq!(check(&path, &file(3, Some(ABC))).unwrap(), Verdict::Right);
        assert_eq!(check(&path, &file(3, None)).unwrap(), Verdict::Right);
        assert_eq!(check(&path, &file(4, Some(ABC))).unwrap(), Verdict::Short);
        assert!(matches!(check(&path, &file(2, None)).unwrap(), Verdict::Wrong(_)));
        std::fs::write(&path, "abd").unwrap();
        assert!(matches!(check(&path, &file(3, Some(ABC))).unwrap(), Verdict::Wrong(_)));
    }

    #[cfg(unix)]
    #[test]
    fn a_blob_is_linked_checked_by_its_name_and_removed_with_its_link() {
        let folder = tempfile::TempDir::new().unwrap();
        let blob = folder.path().join("blobs").join(ABC);
        std::fs::create_dir_all(blob.parent().unwrap()).unwrap();
        std::fs::write(&blob, "abd").unwrap();
        let path = folder.path().join("snapshots/c/a/model.safetensors");
        assert!(link(ABC, &path, &file(3, None)).unwrap());
        assert!(matches!(check(&path, &file(3, None)).unwrap(), Verdict::Wrong(_)));
        remove(&path).unwrap();
        assert!(!blob.exists() && path.symlink_metadata().is_err());
    }
}
