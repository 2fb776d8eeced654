//! The KV cache in a file in memory that outlives the process.
//!
//! The words of the block directory come first. The arena follows on a border of huge pages.

use std::{fs::File, io, sync::Arc};

use playhouse_actors::ports::KeptMemory;
use playhouse_kernels::{KernelError, SharedArena, SharedMemory};

/// Alignment of the arena in the file: a huge page.
const ARENA_ALIGNMENT: usize = 2 << 20;

/// The file that the front gives to its engine process.
#[derive(Debug)]
pub(crate) struct KeptFile {
    /// The file in memory. No other living process uses it once the KV cache is kept there.
    pub(crate) file: File,
    /// A value that only processes with the same weights and settings share.
    pub(crate) fingerprint: [u8; 32],
}

/// A mapped file with the directory and the arena of one KV cache.
#[derive(Debug)]
pub(super) struct KeptCache {
    memory: SharedMemory,
    fingerprint: [u8; 32],
    arena_at: usize,
    arena_len: usize,
}

impl KeptCache {
    /// Maps the directory, and makes the file as large as it has to be.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn new(file: KeptFile, num_words: usize, arena_len: usize) -> io::Result<Arc<Self>> {
        let KeptFile { file, fingerprint } = file;
        let arena_at = (num_words * size_of::<u64>()).next_multiple_of(ARENA_ALIGNMENT);
        let memory = SharedMemory::new(file, num_words, (arena_at + arena_len) as u64)?;
        Ok(Arc::new(Self { memory, fingerprint, arena_at, arena_len }))
    }

    /// Maps the arena.
    ///
    /// # Errors
    /// [`KernelError::Device`] with the system's error, also while an earlier map is in use.
    pub(super) fn arena(&self) -> Result<SharedArena, KernelError> {
        self.memory.arena(self.arena_at as u64, self.arena_len).map_err(|error| {
            let why = format!("the KV cache in shared memory cannot be mapped: {error}");
            KernelError::Device { why, is_out_of_memory: false }
        })
    }

    /// Frees the arena's memory. No block has content.
    pub(super) fn free_arena(&self) {
        if let Err(error) = self.memory.free(self.arena_at as u64) {
            tracing::warn!(%error, "the memory of the KV cache was not released");
        }
    }
}

impl KeptMemory for KeptCache {
    fn fingerprint(&self) -> [u8; 32] {
        self.fingerprint
    }

    fn words(&self) -> Vec<u64> {
        self.memory.words()
    }

    fn store(&self, place: usize, value: u64) {
        self.memory.store(place, value);
    }

    fn clear(&self) -> io::Result<()> {
        self.memory.free(0)
    }
}
