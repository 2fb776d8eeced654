//! Frames: values in bytes, for the journal and for links between processes.
//!
//! ```text
//! header                                                payload
//! length u32 │ version u16 │ payload CRC u32 │ header CRC u32 │ bincode of the value
//! ```
//!
//! Numbers are little-endian. `length` counts the payload's bytes. The CRCs are CRC-32 (ISO-HDLC).
//! The header has a CRC of its own, so a damaged length is never believed. A frame that is cut off
//! differs from a damaged one: more bytes may complete it.
//!
//! The payload is [bincode](https://docs.rs/bincode/2.0.1) with its standard configuration. It does
//! not describe itself, so a framed type must not use serde's `untagged`, `flatten`,
//! `skip_serializing_if`, or hold a `serde_json::Value`. JSON travels as text.

#[cfg(test)]
mod tests;

use std::io;

use bincode::config::{Configuration, Limit, LittleEndian, Varint};
use serde::{Serialize, de::DeserializeOwned};
use sha2::{Digest, Sha256};

/// Number of bytes of a header.
pub const HEADER_LEN: usize = 14;

/// Number of bytes that a payload has at the very most, whatever `Frames::max_len` says.
pub const MAX_PAYLOAD_LEN: usize = 128 << 20;

/// Number of bytes that a decoded value may claim. A value of one byte claims at most 16.
const CLAIM_LIMIT: usize = 16 * MAX_PAYLOAD_LEN;

const BINCODE: Configuration<LittleEndian, Varint, Limit<CLAIM_LIMIT>> =
    bincode::config::standard().with_limit::<CLAIM_LIMIT>();

/// The format of one kind of frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frames {
    /// The version of the framed types. A frame of another version is refused.
    pub version: u16,
    /// Maximum number of bytes of a payload, at most [`MAX_PAYLOAD_LEN`].
    pub max_len: usize,
}

/// A header that passed its checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Number of bytes of the payload.
    pub len: usize,
    payload_crc: u32,
}

/// The error for a value that does not fit a frame.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// The value takes more bytes than a frame may have.
    #[error("the value takes {len} bytes, a frame holds at most {max_len}")]
    TooLong {
        /// Number of bytes of the value.
        len: usize,
        /// Maximum number of bytes.
        max_len: usize,
    },
    /// The value has a form that bincode does not write.
    #[error("the value cannot be encoded: {0}")]
    Value(String),
}

/// The error for bytes that are no frame.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The header's checksum does not match.
    #[error("the frame's header is damaged")]
    Header,
    /// The frame was written in another version of the format.
    #[error("the frame has version {found}, this program reads version {expected}")]
    Version {
        /// The frame's version.
        found: u16,
        /// The version that this program reads.
        expected: u16,
    },
    /// The payload is longer than the frame may be.
    #[error("the frame's payload has {len} bytes, at most {max_len} are accepted")]
    TooLong {
        /// Number of bytes of the payload.
        len: usize,
        /// Maximum number of bytes.
        max_len: usize,
    },
    /// The payload's checksum does not match.
    #[error("the frame's payload is damaged")]
    Payload,
    /// The payload is intact and holds no value of the type.
    #[error("the frame's payload is not of the expected type: {0}")]
    Value(String),
}

/// Writes a payload of at most `max_len` bytes, and counts the bytes of a longer one. So a value
/// of gigabytes takes no memory.
struct Bounded<'a> {
    out: &'a mut Vec<u8>,
    len: usize,
    max_len: usize,
}

impl io::Write for Bounded<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.len += bytes.len();
        if self.len <= self.max_len {
            self.out.extend_from_slice(bytes);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the checksum of bytes that are in no frame.
#[must_use]
pub fn checksum(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

/// Returns a frame whose payload is damaged, with checksums that match the damage. Planted bugs
/// need it: a reader without checksums reads these bytes.
#[must_use]
pub fn with_checksums(bytes: &[u8]) -> Vec<u8> {
    let (mut bytes, length) = (bytes.to_vec(), bytes.first_chunk().copied().unwrap_or_default());
    let end = HEADER_LEN.saturating_add(u32::from_le_bytes(length) as usize);
    let payload = checksum(bytes.get(HEADER_LEN..end).unwrap_or_default());
    if let Some(header) = bytes.first_chunk_mut::<HEADER_LEN>() {
        header[6..10].copy_from_slice(&payload.to_le_bytes());
        let sum = checksum(&header[..10]);
        header[10..].copy_from_slice(&sum.to_le_bytes());
    }
    bytes
}

/// Returns the number of bytes of a value's payload. A value that bincode does not write has the
/// largest number.
#[must_use]
pub fn payload_len<T: Serialize>(value: &T) -> usize {
    let mut counted = Bounded { out: &mut Vec::new(), len: 0, max_len: 0 };
    match bincode::serde::encode_into_std_write(value, &mut counted, BINCODE) {
        Ok(_) => counted.len,
        Err(_) => usize::MAX,
    }
}

/// Returns the first eight bytes of the SHA-256 of a value's payload, big-endian. A value that
/// bincode does not write has the hash of the bytes before the fault.
#[must_use]
pub fn hash<T: Serialize>(value: &T) -> u64 {
    let mut hashed = Hashed(Sha256::new());
    let _ = bincode::serde::encode_into_std_write(value, &mut hashed, BINCODE);
    let digest: [u8; 32] = hashed.0.finalize().into();
    digest.first_chunk().map_or(0, |first| u64::from_be_bytes(*first))
}

/// Hashes what is written.
struct Hashed(Sha256);

impl io::Write for Hashed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Frames {
    /// Appends the frame of a value. After an error, `out` is as before.
    ///
    /// # Errors
    /// [`EncodeError`] if the value is too long, or of a form that bincode does not write.
    pub fn encode<T: Serialize>(&self, value: &T, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let start = out.len();
        let written = self.append(value, out);
        if written.is_err() {
            out.truncate(start);
        }
        written
    }

    fn append<T: Serialize>(&self, value: &T, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let start = out.len();
        out.extend_from_slice(&[0; HEADER_LEN]);
        let max_len = self.max_len();
        let mut bounded = Bounded { out, len: 0, max_len };
        bincode::serde::encode_into_std_write(value, &mut bounded, BINCODE)
            .map_err(|error| EncodeError::Value(error.to_string()))?;
        let len = bounded.len;
        let (header, payload) = out[start..].split_at_mut(HEADER_LEN);
        let short = u32::try_from(len).ok().filter(|_| len <= max_len);
        let short = short.ok_or(EncodeError::TooLong { len, max_len })?;
        header[..4].copy_from_slice(&short.to_le_bytes());
        header[4..6].copy_from_slice(&self.version.to_le_bytes());
        header[6..10].copy_from_slice(&crc32fast::hash(payload).to_le_bytes());
        let header_crc = crc32fast::hash(&header[..10]);
        header[10..].copy_from_slice(&header_crc.to_le_bytes());
        Ok(())
    }

    /// Reads a header. A link reads one, then as many bytes as its `len`.
    ///
    /// # Errors
    /// [`DecodeError`] if the header is damaged, of another version, or of too long a frame.
    pub fn header(&self, bytes: [u8; HEADER_LEN]) -> Result<Header, DecodeError> {
        let [l0, l1, l2, l3, v0, v1, p0, p1, p2, p3, h0, h1, h2, h3] = bytes;
        if crc32fast::hash(&bytes[..10]) != u32::from_le_bytes([h0, h1, h2, h3]) {
            return Err(DecodeError::Header);
        }
        let found = u16::from_le_bytes([v0, v1]);
        if found != self.version {
            return Err(DecodeError::Version { found, expected: self.version });
        }
        let (len, max_len) = (u32::from_le_bytes([l0, l1, l2, l3]) as usize, self.max_len());
        if len > max_len {
            return Err(DecodeError::TooLong { len, max_len });
        }
        Ok(Header { len, payload_crc: u32::from_le_bytes([p0, p1, p2, p3]) })
    }

    /// Reads the value of a whole payload.
    ///
    /// # Errors
    /// [`DecodeError`] if the payload is damaged, or holds no value of the type.
    pub fn payload<T: DeserializeOwned>(
        &self,
        header: Header,
        payload: &[u8],
    ) -> Result<T, DecodeError> {
        if payload.len() != header.len || crc32fast::hash(payload) != header.payload_crc {
            return Err(DecodeError::Payload);
        }
        let (value, read) = bincode::serde::decode_from_slice(payload, BINCODE)
            .map_err(|error| DecodeError::Value(error.to_string()))?;
        if read != payload.len() {
            let rest = payload.len() - read;
            return Err(DecodeError::Value(format!("{rest} bytes follow the value")));
        }
        Ok(value)
    }

    /// Reads the frame at the start of `bytes`. Returns its value and its number of bytes, or
    /// `None` if the frame is cut off.
    ///
    /// # Errors
    /// [`DecodeError`] if the bytes begin no frame of this format and type.
    pub fn decode<T: DeserializeOwned>(
        &self,
        bytes: &[u8],
    ) -> Result<Option<(T, usize)>, DecodeError> {
        let Some((header, rest)) = bytes.split_first_chunk::<HEADER_LEN>() else {
            return Ok(None);
        };
        let header = self.header(*header)?;
        let Some(payload) = rest.get(..header.len) else { return Ok(None) };
        Ok(Some((self.payload(header, payload)?, HEADER_LEN + header.len)))
    }

    fn max_len(&self) -> usize {
        self.max_len.min(MAX_PAYLOAD_LEN)
    }
}
