//! The port to memory that outlives its process: a KV cache's content and the words of its block
//! directory.

use std::{fmt, io};

/// The memory of one engine's KV cache. The next process of the engine finds its content.
pub trait KeptMemory: fmt::Debug + Send + Sync + 'static {
    /// Returns a value that two processes share only if each reads the content of the other: the
    /// same weights, settings and layout.
    fn fingerprint(&self) -> [u8; 32];

    /// Returns the words of the directory, as many as this memory has.
    fn words(&self) -> Vec<u64>;

    /// Stores a word of the directory. If the process dies, all of its earlier stores to this
    /// memory are in it, and no later one. A place outside of the directory changes nothing.
    fn store(&self, place: usize, value: u64);

    /// Frees the content and the directory. Both are zero then. No executor may use the KV cache.
    ///
    /// # Errors
    /// The system's error. The content is then undefined.
    fn clear(&self) -> io::Result<()>;
}
