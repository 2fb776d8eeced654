//! A file mapped read-only into memory: the one place where the operating system's memory mapping,
//! which Rust cannot prove safe, is used.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

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
        // and caches of them are written once and replaced by renaming.
        let map = unsafe { memmap2::Mmap::map(&file)? };
        Ok(Self { map })
    }

    /// The file's contents.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.map
    }

    /// Says that `range` will not be read soon: its pages no longer count as this process's memory.
    /// They stay in the system's page cache, and come back if they are read after all.
    pub fn release(&self, range: Range<usize>) {
        let len = self.map.len();
        let (start, end) = (range.start.min(len), range.end.min(len));
        #[cfg(unix)]
        if start < end {
            // SAFETY: the map is read-only and of a file, so dropped pages are read again as they
            // were. Where the advice is refused, the pages stay, which harms nothing.
            let _ = unsafe {
                self.map.unchecked_advise_range(
                    memmap2::UncheckedAdvice::DontNeed,
                    start,
                    end - start,
                )
            };
        }
    }
}

/// Some bytes of a mapped file, which they keep mapped.
#[derive(Debug, Clone)]
pub struct MappedRange {
    file: Arc<MappedFile>,
    range: Range<usize>,
}

impl MappedRange {
    /// `None` if the file is shorter.
    #[must_use]
    pub fn new(file: &Arc<MappedFile>, range: Range<usize>) -> Option<Self> {
        file.bytes().get(range.clone())?;
        Some(Self { file: Arc::clone(file), range })
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.file.bytes()[self.range.clone()]
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{MappedFile, MappedRange};

    #[test]
    fn what_was_released_can_be_read_again_and_no_range_leaves_the_file() {
        let path = std::env::temp_dir().join(format!("mapped-range-{}", std::process::id()));
        let contents: Vec<u8> = (0..100_000u32).map(|i| (i % 251) as u8).collect();
        std::fs::write(&path, &contents).unwrap();
        let file = Arc::new(MappedFile::open(&path).unwrap());
        let range = MappedRange::new(&file, 5_000..90_000).unwrap();
        for released in [0..100_000, 4_097..60_001, 70_000..usize::MAX, 9..9] {
            file.release(released);
            assert_eq!(file.bytes(), contents);
            assert_eq!(range.bytes(), &contents[5_000..90_000]);
        }
        assert!(MappedRange::new(&file, 0..100_001).is_none());
        std::fs::remove_file(&path).unwrap();
    }

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
