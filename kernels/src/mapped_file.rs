//! A file mapped read-only into memory: the one place where the operating system's memory mapping,
//! which Rust cannot prove safe, is used.

mod guard;
mod regular;

use std::fs::{File, Metadata};
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

pub use guard::EXIT_FILE_LOST;
use guard::Guard;
pub use regular::{open_regular, require_regular};

/// The bytes of a file, mapped read-only. Pages are read when they are first touched, so opening
/// is cheap however large the file is.
///
/// A file that is cut while it is mapped ends the process with [`EXIT_FILE_LOST`] as soon as a lost
/// page is read. Changes within a page raise no signal: [`MappedFile::is_unchanged`] finds those.
#[derive(Debug)]
pub struct MappedFile {
    /// Dropped before the map whose range it watches.
    _guard: Guard,
    map: memmap2::Mmap,
    file: File,
    metadata: Metadata,
}

impl MappedFile {
    /// Maps the whole of `path`.
    ///
    /// # Errors
    /// What opening or mapping the file reports: it is absent, no regular file, not readable.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = open_regular(path)?;
        let metadata = file.metadata()?;
        // SAFETY: the map is read-only. The remaining hazard is another process that changes the
        // file while it is mapped. Model files and caches of them are written once and replaced by
        // renaming; one that is cut all the same ends this process in order, by the guard.
        let map = unsafe { memmap2::Mmap::map(&file)? };
        Ok(Self { _guard: Guard::new(path, &map), map, file, metadata })
    }

    /// Whether the file has the length and the time of modification that it was opened with.
    #[must_use]
    pub fn is_unchanged(&self) -> bool {
        self.file.metadata().is_ok_and(|now| {
            now.len() == self.metadata.len() && now.modified().ok() == self.metadata.modified().ok()
        })
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
    fn a_file_that_was_cut_or_written_is_noticed() {
        let path = std::env::temp_dir().join(format!("mapped-changed-{}", std::process::id()));
        std::fs::write(&path, vec![7; 10_000]).unwrap();
        let file = MappedFile::open(&path).unwrap();
        assert!(file.is_unchanged());
        std::fs::File::options().write(true).open(&path).unwrap().set_len(9_999).unwrap();
        assert!(!file.is_unchanged());
        // Within a page the system fills what was cut with zeros and raises no signal.
        assert_eq!(file.bytes()[9_999], 0);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn refuses_what_is_not_a_file() {
        assert!(MappedFile::open(&std::env::temp_dir()).is_err());
        assert!(MappedFile::open("/nonexistent/model.safetensors".as_ref()).is_err());
    }
}
