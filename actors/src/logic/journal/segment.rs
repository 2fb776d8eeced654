//! Segments: the content of the journal's files.

use super::{Live, Record};
use crate::{
    codec::{DecodeError, Frames, MAX_PAYLOAD_LEN, with_checksums},
    logic::planted::{Bug, planted},
};

/// The frames of a segment. A change of [`Record`] or of a type in it needs another version.
pub const FRAMES: Frames = Frames { version: 3, max_len: MAX_PAYLOAD_LEN };

/// The content of a segment.
#[derive(Debug, Clone, PartialEq)]
pub struct Scan {
    /// The fold of its records.
    pub live: Live,
    /// Number of intact records.
    pub num_records: usize,
    /// Number of bytes of the intact records.
    pub num_bytes: usize,
    /// The reason why the rest was not read.
    pub fault: Option<ScanFault>,
}

/// The reason why a segment was not read to its end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScanFault {
    /// The last record is cut off, as after a crash within a write.
    #[error("the last record is cut off: {num_bytes} bytes of it are there")]
    CutOff {
        /// Number of bytes of the record.
        num_bytes: usize,
    },
    /// A record is damaged. Later records cannot be found.
    #[error("{cause}; {num_bytes} bytes from there on were not read")]
    Damaged {
        /// The fault of the record.
        cause: DecodeError,
        /// Number of bytes from the record on.
        num_bytes: usize,
    },
}

/// Reads the longest intact beginning of a segment.
#[must_use]
pub fn scan(segment: &[u8]) -> Scan {
    let mut scan = Scan { live: Live::default(), num_records: 0, num_bytes: 0, fault: None };
    loop {
        let rest = segment.get(scan.num_bytes..).unwrap_or_default();
        if rest.is_empty() {
            return scan;
        }
        match decode(rest) {
            Ok(Some((record, len))) => {
                scan.live.apply(&record, len);
                scan.num_records += 1;
                scan.num_bytes += len;
            }
            Ok(None) => {
                scan.fault = Some(ScanFault::CutOff { num_bytes: rest.len() });
                return scan;
            }
            Err(cause) => {
                scan.fault = Some(ScanFault::Damaged { cause, num_bytes: rest.len() });
                return scan;
            }
        }
    }
}

/// Reads the record at the start of `bytes`, and its number of bytes. `None`: it is cut off.
fn decode(bytes: &[u8]) -> Result<Option<(Record, usize)>, DecodeError> {
    match FRAMES.decode(bytes) {
        Err(DecodeError::Payload) if planted(Bug::AcceptDamagedRecord) => {
            FRAMES.decode(&with_checksums(bytes))
        }
        record => record,
    }
}
