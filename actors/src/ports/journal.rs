//! The disk under the journal.

use std::io;

/// The files of one journal. One engine has it open at a time.
pub trait JournalDisk: Send {
    /// Returns the content of the newest segment, or `None` if there is none.
    ///
    /// # Errors
    /// The disk's error.
    fn read(&mut self) -> io::Result<Option<Vec<u8>>>;

    /// Begins a new segment with `content`, all of it durable, and then removes the older ones. If
    /// it fails, or the process dies meanwhile, the newest segment is the one before or the new
    /// one.
    ///
    /// # Errors
    /// The disk's error.
    fn replace(&mut self, content: &[u8]) -> io::Result<()>;

    /// Appends bytes to the newest segment. After an error, any part of them may be there.
    ///
    /// # Errors
    /// The disk's error.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Makes all appended bytes durable. After an error, it is not known which of them are.
    ///
    /// # Errors
    /// The disk's error.
    fn sync(&mut self) -> io::Result<()>;

    /// Keeps a copy of the newest segment for the operator. Returns its name. No later segment
    /// replaces it.
    ///
    /// # Errors
    /// The disk's error.
    fn set_aside(&mut self) -> io::Result<String>;

    /// Removes all segments, because nothing in them is needed.
    ///
    /// # Errors
    /// The disk's error. Some segments may be there then.
    fn remove(&mut self) -> io::Result<()>;
}
