//! The bytes of a recording. A frame has several entries, because its header is longer than most of
//! them.

use super::{Began, Entry};
use crate::codec::{DecodeError, EncodeError, Frames, MAX_PAYLOAD_LEN};

/// The frames of a recording. A change of [`Entry`] or of a type in it needs another version.
pub const FRAMES: Frames = Frames { version: 2, max_len: MAX_PAYLOAD_LEN };

/// Number of entries of a frame that is written at once.
const FRAME_ENTRIES: usize = 256;

/// The content of a recording.
#[derive(Debug, Clone, PartialEq)]
pub struct Scan {
    /// The first entry.
    pub began: Began,
    /// The entries after it.
    pub entries: Vec<Entry>,
    /// Number of bytes of the intact frames.
    pub num_bytes: usize,
    /// The reason why the rest was not read.
    pub fault: Option<ScanFault>,
}

/// The reason why a recording was not read, or not to its end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScanFault {
    /// There is nothing of it.
    #[error("it is empty; expected a recording")]
    Empty,
    /// The first entry is missing.
    #[error("its first entry does not begin a recording; expected the facts about the engine")]
    NoBegin,
    /// The last frame is cut off.
    #[error("the last frame is cut off: {num_bytes} bytes of it are there")]
    CutOff {
        /// Number of bytes of the frame.
        num_bytes: usize,
    },
    /// A frame is damaged. Later frames cannot be found.
    #[error("{cause}; {num_bytes} bytes from byte {at} on were not read")]
    Damaged {
        /// The fault of the frame.
        cause: DecodeError,
        /// The place of the frame.
        at: usize,
        /// Number of bytes from the frame on.
        num_bytes: usize,
    },
}

/// Returns the bytes of a recording.
///
/// # Errors
/// [`EncodeError`] if an entry is too long.
pub fn encode(scan: &Scan) -> Result<Vec<u8>, EncodeError> {
    let mut bytes = Vec::new();
    FRAMES.encode(&[Entry::Began(Box::new(scan.began.clone()))].as_slice(), &mut bytes)?;
    for entries in scan.entries.chunks(FRAME_ENTRIES) {
        FRAMES.encode(&entries, &mut bytes)?;
    }
    Ok(bytes)
}

/// Reads the longest intact beginning of a recording.
///
/// # Errors
/// [`ScanFault`] if the facts about the engine are not intact. Nothing can be replayed then.
pub fn scan(bytes: &[u8]) -> Result<Scan, ScanFault> {
    let (mut entries, mut num_bytes, mut fault) = (Vec::new(), 0, None);
    while let Some(rest) = bytes.get(num_bytes..).filter(|rest| !rest.is_empty()) {
        match FRAMES.decode::<Vec<Entry>>(rest) {
            Ok(Some((more, len))) => {
                entries.extend(more);
                num_bytes += len;
            }
            Ok(None) => {
                fault = Some(ScanFault::CutOff { num_bytes: rest.len() });
                break;
            }
            Err(cause) => {
                fault = Some(ScanFault::Damaged { cause, at: num_bytes, num_bytes: rest.len() });
                break;
            }
        }
    }
    let mut entries = entries.into_iter();
    match entries.next() {
        Some(Entry::Began(began)) => {
            Ok(Scan { began: *began, entries: entries.collect(), num_bytes, fault })
        }
        Some(_) => Err(ScanFault::NoBegin),
        None => Err(fault.unwrap_or(ScanFault::Empty)),
    }
}
