//! The faults of a journal.

use std::io;

/// The reason why records are not durable.
#[derive(Debug, thiserror::Error)]
pub enum JournalFault {
    /// The disk failed.
    #[error("the disk failed: {0}")]
    Disk(#[from] io::Error),
    /// The content has reached its limit.
    #[error("the open answers take {needed} bytes, journal_max_bytes is {max}")]
    Full {
        /// Bytes of the content.
        needed: usize,
        /// The limit.
        max: usize,
    },
    /// A record cannot be written.
    #[error("a record cannot be written: {0}")]
    Record(#[from] crate::codec::EncodeError),
    /// The writer panicked. This is a bug.
    #[error("the journal's thread panicked: {0}")]
    Panicked(String),
}

/// The reason why a journal was not opened. The operator must act.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The disk failed.
    #[error("the journal cannot be read or written: {0}")]
    Disk(#[from] io::Error),
    /// Another version of the program wrote it.
    #[error(
        "the journal has version {found}, this program reads version {expected}: let the program \
         that wrote it finish its requests, or choose another folder"
    )]
    Version {
        /// The version of the segment.
        found: u16,
        /// The version that this program reads.
        expected: u16,
    },
    /// The answers do not fit the limit.
    #[error(transparent)]
    Write(#[from] JournalFault),
}
