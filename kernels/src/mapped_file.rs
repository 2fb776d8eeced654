//! A file mapped read-only into memory: the one place where the operating system's memory mapping,
//! which Rust cannot prove safe, is used.

use std::fs::File;
use std::io;
use std::path::Path;

/// The bytes of a file, mapped read-only. Pages are read when they are first touched, so opening
/// is cheap however large the file is.
#[derive(Debug)]
pub struct MappedFile {
    map: memmap2::Mmap,
}

impl MappedFile {
    /// Maps the whole of `path`.
    ///
    /// # Errors
    /// What opening or mapping the file reports: it is absent, a folder, not readable.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        // SAFETY: the map is read-only and private to this process. The remaining hazard is another
        // process that shrinks the file while it is mapped, which would raise SIGBUS; model files
        // are written once and replaced by renaming, and the map lives only while they are loaded.
        let map = unsafe { memmap2::Mmap::map(&file)? };
        Ok(Self { map })
    }

    /// The file's contents.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.map
    }
}

#[cfg(test)]
mod tests {
    use super::MappedFile;

    #[test]
    fn maps_what_the_file_holds() {
        let path = std::env::temp_dir().join(format!("mapped-file-{}", std::process::id()));
        for contents in [&b""[..], b"x", b"four score"] {
            std::fs::write(&path, contents).unwrap();
            assert_eq!(MappedFile::open(&path).unwrap().bytes(), contents);
        }
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn refuses_what_is_not_a_file() {
        assert!(MappedFile::open(&std::env::temp_dir()).is_err());
        assert!(MappedFile::open("/nonexistent/model.safetensors".as_ref()).is_err());
    }
}
