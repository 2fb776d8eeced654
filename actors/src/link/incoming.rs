//! The receiving end of a link.

use std::{io, marker::PhantomData};

use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt};

use super::frames::FRAMES;
use crate::{
    codec::{DecodeError, with_checksums},
    fault::{Bug, planted},
};

/// Number of bytes that are read at once.
const READ_LEN: usize = 64 << 10;

/// Any readable byte stream.
pub type Reader = Box<dyn AsyncRead + Send + Unpin>;

/// The reason why a link has no more frames.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The other end is gone.
    #[error("the link was closed")]
    Closed,
    /// The byte stream failed.
    #[error("the link failed: {0}")]
    Io(#[from] io::Error),
    /// The bytes are no frame.
    #[error("garbage on the link: {0}")]
    Garbage(#[from] DecodeError),
}

/// The receiving end of a link. A frame that was written in part is never seen.
pub struct Incoming<T> {
    reader: Reader,
    bytes: Vec<u8>,
    /// Number of bytes at the start of `bytes` that are read already.
    done: usize,
    read: PhantomData<fn() -> T>,
}

impl<T> std::fmt::Debug for Incoming<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Incoming").field("bytes", &self.bytes.len()).finish_non_exhaustive()
    }
}

impl<T: DeserializeOwned> Incoming<T> {
    /// Returns the receiving end over a byte stream.
    #[must_use]
    pub fn new(reader: Reader) -> Self {
        Self { reader, bytes: Vec::new(), done: 0, read: PhantomData }
    }

    /// Waits for the next frame. A caller that stops waiting loses nothing.
    ///
    /// # Errors
    /// [`LinkError`]. The link is of no more use after it.
    pub async fn next(&mut self) -> Result<T, LinkError> {
        loop {
            if let Some((frame, len)) = decode(&self.bytes[self.done..])? {
                self.done += len;
                return Ok(frame);
            }
            self.bytes.drain(..self.done);
            self.done = 0;
            if self.bytes.is_empty() && self.bytes.capacity() > 16 * READ_LEN {
                self.bytes = Vec::new();
            }
            self.bytes.reserve(READ_LEN);
            if self.reader.read_buf(&mut self.bytes).await? == 0 {
                return Err(LinkError::Closed);
            }
        }
    }
}

/// Reads the frame at the start of `bytes`, and its number of bytes. `None`: it is cut off.
fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<Option<(T, usize)>, DecodeError> {
    match FRAMES.decode(bytes) {
        Err(DecodeError::Payload) if planted(Bug::AcceptDamagedFrame) => {
            FRAMES.decode(&with_checksums(bytes))
        }
        frame => frame,
    }
}
