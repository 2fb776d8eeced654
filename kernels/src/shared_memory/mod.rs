//! Memory of a file that several processes map, one after the other. Each finds the content that
//! the one before has written, however that process ended.

mod pages;

use std::fs::File;
use std::io;
#[cfg(target_os = "linux")]
use std::os::fd::AsRawFd;
use std::sync::{
    Arc, Mutex, PoisonError, Weak,
    atomic::{AtomicU64, Ordering},
};

use memmap2::{MmapOptions, MmapRaw};

pub(crate) use self::pages::Pages;
use crate::KernelError;
use crate::aligned::{AlignedBuf, CACHE_LINE_BYTES};

/// A file in memory: words at its beginning, and an arena behind them.
///
/// Two processes must not use it at the same time. The caller makes sure that the process before
/// has ended. The file must not be cut while it is mapped, because the system ends a process that
/// uses a lost page.
#[derive(Debug)]
pub struct SharedMemory {
    file: File,
    words: MmapRaw,
    num_words: usize,
    /// The arena that was mapped last.
    arena: Mutex<Weak<Pages>>,
}

/// The arena of a shared file. Buffers are taken from it.
#[derive(Debug)]
pub struct SharedArena {
    pages: Arc<Pages>,
    taken: usize,
}

impl SharedMemory {
    /// Maps the first `num_words` words of `file`, whose length becomes `len` if it is shorter.
    ///
    /// # Errors
    /// The system's error.
    pub fn new(file: File, num_words: usize, len: u64) -> io::Result<Self> {
        if file.metadata()?.len() < len {
            file.set_len(len)?;
        }
        seal(&file);
        let bytes = num_words.saturating_mul(size_of::<u64>());
        require_len(&file, bytes as u64)?;
        let words = MmapOptions::new().len(bytes).map_raw(&file)?;
        Ok(Self { file, words, num_words, arena: Mutex::default() })
    }

    /// Returns all words.
    #[must_use]
    pub fn words(&self) -> Vec<u64> {
        let words = (0..self.num_words).filter_map(|place| self.word(place));
        words.map(|word| word.load(Ordering::Acquire)).collect()
    }

    /// Stores a word, after all earlier stores of this thread. Beyond the end nothing changes.
    pub fn store(&self, place: usize, value: u64) {
        if let Some(word) = self.word(place) {
            word.store(value, Ordering::Release);
        }
    }

    fn word(&self, place: usize) -> Option<&AtomicU64> {
        if place >= self.num_words {
            return None;
        }
        let word = self.words.as_mut_ptr().cast::<u64>().wrapping_add(place);
        // SAFETY: the word is within the map, which lives as long as the reference. A map begins
        // on a page, so the word is aligned. All accesses to it are atomic.
        Some(unsafe { AtomicU64::from_ptr(word) })
    }

    /// Maps `len` bytes from `offset` on as the arena, on huge pages where the system grants them.
    /// Memory is allocated where it is first touched.
    ///
    /// # Errors
    /// [`io::ErrorKind::ResourceBusy`] while a buffer of an earlier arena lives. A file that is too
    /// short, a system other than Linux, or the system's error.
    pub fn arena(&self, offset: u64, len: usize) -> io::Result<SharedArena> {
        // The value is whole after each statement, so a panic leaves nothing half done.
        let mut last = self.arena.lock().unwrap_or_else(PoisonError::into_inner);
        if last.strong_count() > 0 {
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, "the arena is in use"));
        }
        require_len(&self.file, offset.saturating_add(len as u64))?;
        let pages = Arc::new(Pages::map(&self.file, offset, len)?);
        *last = Arc::downgrade(&pages);
        Ok(SharedArena { pages, taken: 0 })
    }

    /// Frees the memory of the file from `offset` on, which is zero then.
    ///
    /// # Errors
    /// The system's error.
    pub fn free(&self, offset: u64) -> io::Result<()> {
        let len = self.file.metadata()?.len();
        if offset >= len {
            return Ok(());
        }
        punch(&self.file, offset, len - offset)
    }
}

/// Lets no process cut the file. A file on a disk has no seals.
#[cfg(target_os = "linux")]
fn seal(file: &File) {
    // SAFETY: the descriptor is open, and the call takes a number.
    unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_SHRINK) };
}

#[cfg(not(target_os = "linux"))]
fn seal(_: &File) {}

#[cfg(target_os = "linux")]
fn punch(file: &File, offset: u64, len: u64) -> io::Result<()> {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    let [offset, len] = [offset, len].map(|bytes| i64::try_from(bytes).unwrap_or(i64::MAX));
    // SAFETY: the descriptor is open. Maps of the file stay valid, and read zeros.
    match unsafe { libc::fallocate64(file.as_raw_fd(), mode, offset, len) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(not(target_os = "linux"))]
fn punch(_: &File, _: u64, _: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

impl SharedArena {
    /// Takes the next `len` elements, with the content that they have.
    pub(crate) fn take<T: bytemuck::Pod>(
        &mut self,
        len: usize,
        what: &'static str,
    ) -> Result<AlignedBuf<T>, KernelError> {
        let bytes = len.saturating_mul(size_of::<T>());
        let left = self.pages.len() - self.taken;
        let accepted = format!("at most {left}");
        KernelError::require(bytes <= left, what, "bytes", bytes as u64, accepted)?;
        let start = self.pages.as_mut_ptr().wrapping_add(self.taken);
        self.taken += bytes.next_multiple_of(CACHE_LINE_BYTES).min(left);
        // SAFETY: the part is within the map and is handed out once. There is one arena of the file
        // in this process, and one process that uses the file. Any bytes are a `T: Pod`. A map
        // begins on a page, and parts begin on cache lines.
        Ok(unsafe { AlignedBuf::shared(start.cast(), len, Arc::clone(&self.pages)) })
    }
}

fn require_len(file: &File, needed: u64) -> io::Result<()> {
    let found = file.metadata()?.len();
    if found >= needed {
        return Ok(());
    }
    let message = format!("the file has {found} bytes, {needed} are needed");
    Err(io::Error::new(io::ErrorKind::InvalidInput, message))
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    const PAGE: usize = 1 << 12;

    fn memory(file: &File, num_words: usize, num_pages: usize) -> io::Result<SharedMemory> {
        SharedMemory::new(file.try_clone()?, num_words, (num_pages * PAGE) as u64)
    }

    fn file(name: &str) -> File {
        let path = std::env::temp_dir().join(format!("shared-{name}-{}", std::process::id()));
        let mut options = File::options();
        let file = options.read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        file
    }

    #[test]
    fn words_and_content_are_there_for_the_next_map() {
        let file = file("content");
        for round in 0..3 {
            let memory = memory(&file, 4, 3).unwrap();
            let mut arena = memory.arena(PAGE as u64, 2 * PAGE).unwrap();
            let first = arena.take::<f32>(3, "test").unwrap();
            let mut second = arena.take::<u16>(100, "test").unwrap();
            assert_eq!(second.as_ptr() as usize % CACHE_LINE_BYTES, 0);
            assert_eq!(first[..], [0.0; 3]);
            assert!(second.iter().all(|x| *x == round), "{round}");
            second.fill(round + 1);
            assert_eq!(memory.words(), [0, 0, u64::from(round), 0]);
            memory.store(2, u64::from(round) + 1);
            memory.store(4, 9);
        }
    }

    #[test]
    fn there_is_one_arena_at_a_time() {
        let memory = memory(&file("busy"), 1, 2).unwrap();
        let arena = || memory.arena(PAGE as u64, PAGE);
        let buffer = arena().unwrap().take::<u8>(1, "test").unwrap();
        assert_eq!(arena().unwrap_err().kind(), io::ErrorKind::ResourceBusy);
        drop(buffer);
        assert!(arena().is_ok());
    }

    #[test]
    fn more_than_there_is_is_an_error() {
        let file = file("short");
        let memory = memory(&file, 512, 1).unwrap();
        assert!(SharedMemory::new(file, 513, 0).is_err());
        assert!(memory.arena(0, PAGE + 1).is_err());
        let mut arena = memory.arena(0, PAGE).unwrap();
        assert!(arena.take::<f32>(1024, "test").is_ok());
        assert!(arena.take::<u8>(1, "test").is_err());
    }

    #[test]
    fn freed_memory_is_zero() {
        let memory = memory(&file("freed"), 512, 2).unwrap();
        memory.store(1, 7);
        let mut buffer = memory.arena(PAGE as u64, PAGE).unwrap().take::<u8>(9, "test").unwrap();
        buffer[8] = 1;
        memory.free(PAGE as u64).unwrap();
        assert_eq!((buffer[8], memory.words()[1]), (0, 7));
        memory.free(0).unwrap();
        assert_eq!(memory.words()[1], 0);
        memory.free(1 << 40).unwrap();
    }
}
