//! A file mapped read-only into memory. This is the only place with the operating system's memory
//! mapping, which Rust cannot prove safe.

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

/// The bytes of a file, mapped read-only. A page is read when it is first touched, so opening is
/// cheap for files of any size.
///
/// If the file is truncated while it is mapped, the first read of a lost page ends the process with
/// [`EXIT_FILE_LOST`]. Changes within a page raise no signal: [`MappedFile::is_unchanged`] finds
/// those.
#[derive(Debug)]
pub struct MappedFile {
    /// Declared first, so that it is dropped before the map whose range it watches.
    _guard: Guard,
    map: memmap2::Mmap,
    file: File,
    metadata: Metadata,
}

impl MappedFile {
    /// Maps the whole of `path`.
    ///
    /// # Errors
    /// The error of opening or mapping the file: it is absent, not a regular file, or not readable.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = open_regular(path)?;
        let metadata = file.metadata()?;
        // SAFETY: the map is read-only. The remaining hazard is another process that changes the
        // file while it is mapped. Model files and caches of them are written once and replaced by
        // renaming. If such a file is truncated nevertheless, the guard ends this process in order.
        let map = unsafe { memmap2::Mmap::map(&file)? };
        Ok(Self { _guard: Guard::new(path, &map), map, file, metadata })
    }

    /// Returns whether the file still has the length and the modification time of its opening.
    #[must_use]
    pub fn is_unchanged(&self) -> bool {
        self.file.metadata().is_ok_and(|now| {
            now.len() == self.metadata.len() && now.modified().ok() == self.metadata.modified().ok()
        })
    }

    /// Returns the file's contents.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.map
    }

    /// Announces that `range` will not be read soon. Its pages no longer count as this process's
    /// memory. They stay in the system's page cache, and a later read maps them again.
    pub fn release(&self, range: Range<usize>) {
        let len = self.map.len();
        let (start, end) = (range.start.min(len), range.end.min(len));
        #[cfg(unix)]
        if start < end {
            // SAFETY: the map is read-only and of a file, so dropped pages are read again with the
            // same content. Where the system refuses the advice, the pages stay, which is harmless.
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

/// A range of a mapped file. It keeps the file mapped.
#[derive(Debug, Clone)]
pub struct MappedRange {
    file: Arc<MappedFile>,
    range: Range<usize>,
}

impl MappedRange {
    /// Returns the range, or `None` if the file is shorter.
    #[must_use]
    pub fn new(file: &Arc<MappedFile>, range: Range<usize>) -> Option<Self> {
        file.bytes().get(range.clone())?;
        Some(Self { file: Arc::clone(file), range })
    }

    /// Returns the bytes.
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
    fn released_pages_can_be_read_again_and_no_range_leaves_the_file() {
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
    fn a_map_holds_the_content_of_the_file() {
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
        // Within a page the system fills the truncated part with zeros and raises no signal.
        assert_eq!(file.bytes()[9_999], 0);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_path_that_is_no_file_is_rejected() {
        assert!(MappedFile::open(&std::env::temp_dir()).is_err());
        assert!(MappedFile::open("/nonexistent/model.safetensors".as_ref()).is_err());
    }
}
