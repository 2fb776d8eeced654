//! Encryption of a journal's segments.
//!
//! ```text
//! magic [8] │ id of the segment [16] │ frames of `Sealed`
//! ```
//!
//! The cipher is XChaCha20-Poly1305 with a random nonce for each record
//! (<https://datatracker.ietf.org/doc/html/draft-irtf-cfrg-xchacha-03>). A record is bound to its
//! segment and to its place there. So without the key, records cannot be read, changed, moved or
//! exchanged. Segments from before there was a key are read as they are.

use std::io::{Error, ErrorKind, Result};

use chacha20poly1305::{
    XNonce,
    aead::{Aead as _, Generate as _, Payload},
};
use playhouse_actors::{
    codec::{Frames, HEADER_LEN, MAX_PAYLOAD_LEN},
    ports::JournalDisk,
};
use serde::{Deserialize, Serialize};

use super::{disk::FileDisk, key::JournalKey};

const MAGIC: &[u8; 8] = b"PLAYHJS1";
const FRAMES: Frames = Frames { version: 1, max_len: MAX_PAYLOAD_LEN };

/// Most bytes of a record.
const RECORD_BYTES: usize = 4 << 20;

type SegmentId = [u8; 16];

/// A record: some bytes of the segment, encrypted.
#[derive(Debug, Serialize, Deserialize)]
struct Sealed {
    nonce: [u8; 24],
    ciphertext: Vec<u8>,
}

/// The files of one journal, encrypted if there is a key.
#[derive(Debug)]
pub(crate) struct SealedDisk<D = FileDisk> {
    files: D,
    key: Option<JournalKey>,
    /// The segment that this process writes, and the number of its records.
    writing: (SegmentId, u64),
}

impl<D: JournalDisk> SealedDisk<D> {
    pub(super) fn new(files: D, key: Option<JournalKey>) -> Self {
        Self { files, key, writing: Default::default() }
    }

    /// Appends the records of `bytes` to `out`.
    fn seal(&mut self, key: &JournalKey, bytes: &[u8], out: &mut Vec<u8>) -> Result<()> {
        for bytes in bytes.chunks(RECORD_BYTES) {
            let (id, number) = self.writing;
            self.writing.1 += 1;
            let nonce = XNonce::try_generate().map_err(Error::other)?;
            let payload = Payload { msg: bytes, aad: &place(id, number) };
            let ciphertext = key.cipher().encrypt(&nonce, payload);
            let ciphertext = ciphertext.map_err(|_| Error::other("a record is too long"))?;
            let sealed = Sealed { nonce: nonce.into(), ciphertext };
            FRAMES.encode(&sealed, out).map_err(Error::other)?;
        }
        Ok(())
    }
}

impl<D: JournalDisk> JournalDisk for SealedDisk<D> {
    /// Bytes that cannot be opened follow as they are, so that the reader notices a fault.
    fn read(&mut self) -> Result<Option<Vec<u8>>> {
        let Some(content) = self.files.read()? else { return Ok(None) };
        match (content.strip_prefix(MAGIC), &self.key) {
            (None, _) => Ok(Some(content)),
            (Some(sealed), Some(key)) => open(key, sealed).map(Some),
            (Some(_), None) => Err(invalid("it is encrypted, and there is no journal_key_file")),
        }
    }

    fn replace(&mut self, content: &[u8]) -> Result<()> {
        let Some(key) = self.key.clone() else { return self.files.replace(content) };
        let id = SegmentId::try_generate().map_err(Error::other)?;
        self.writing = (id, 0);
        let mut sealed = [&MAGIC[..], &id].concat();
        self.seal(&key, content, &mut sealed)?;
        self.files.replace(&sealed)
    }

    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let Some(key) = self.key.clone() else { return self.files.append(bytes) };
        let mut sealed = Vec::new();
        self.seal(&key, bytes, &mut sealed)?;
        self.files.append(&sealed)
    }

    fn sync(&mut self) -> Result<()> {
        self.files.sync()
    }

    fn set_aside(&mut self) -> Result<String> {
        self.files.set_aside()
    }

    fn remove(&mut self) -> Result<()> {
        self.files.remove()
    }
}

/// Returns the bytes that a record is bound to.
fn place(id: SegmentId, number: u64) -> [u8; 24] {
    let mut place = [0; 24];
    place[..16].copy_from_slice(&id);
    place[16..].copy_from_slice(&number.to_le_bytes());
    place
}

/// Returns the bytes of a sealed segment, without its magic.
fn open(key: &JournalKey, sealed: &[u8]) -> Result<Vec<u8>> {
    let Some((id, mut rest)) = sealed.split_first_chunk() else {
        return Err(invalid("its first segment is cut off"));
    };
    let (mut content, mut number) = (Vec::new(), 0);
    while !rest.is_empty() {
        let len = match FRAMES.decode::<Sealed>(rest) {
            Ok(Some((record, len))) => {
                let nonce = XNonce::from(record.nonce);
                let payload = Payload { msg: &record.ciphertext, aad: &place(*id, number) };
                match key.cipher().decrypt(&nonce, payload) {
                    Ok(bytes) => content.extend(bytes),
                    Err(_) if number == 0 => {
                        return Err(invalid("the key in journal_key_file does not open it"));
                    }
                    Err(_) => break,
                }
                len
            }
            Ok(None) => {
                // So few bytes are a record that is cut off for the reader, too.
                rest = &rest[..rest.len().min(HEADER_LEN - 1)];
                break;
            }
            Err(_) => break,
        };
        number += 1;
        rest = &rest[len..];
    }
    content.extend_from_slice(rest);
    Ok(content)
}

fn invalid(why: &str) -> Error {
    Error::new(ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk in memory with one segment.
    #[derive(Debug, Default, Clone)]
    struct Memory(Option<Vec<u8>>);

    impl JournalDisk for Memory {
        fn read(&mut self) -> Result<Option<Vec<u8>>> {
            Ok(self.0.clone())
        }

        fn replace(&mut self, content: &[u8]) -> Result<()> {
            self.0 = Some(content.to_vec());
            Ok(())
        }

        fn append(&mut self, bytes: &[u8]) -> Result<()> {
            self.0.as_mut().unwrap().extend(bytes);
            Ok(())
        }

        fn sync(&mut self) -> Result<()> {
            Ok(())
        }

        fn set_aside(&mut self) -> Result<String> {
            Ok("aside".to_owned())
        }

        fn remove(&mut self) -> Result<()> {
            self.0 = None;
            Ok(())
        }
    }

    fn key(byte: u8) -> Option<JournalKey> {
        Some(JournalKey::new(&[byte; 32]))
    }

    /// Writes a segment with three records.
    fn written(key: Option<JournalKey>) -> Vec<u8> {
        let mut disk = SealedDisk::new(Memory::default(), key);
        disk.replace(b"the first secret").unwrap();
        disk.append(b", the second").unwrap();
        disk.append(b", the third").unwrap();
        disk.files.0.unwrap()
    }

    fn read(segment: Vec<u8>, key: Option<JournalKey>) -> Result<Option<Vec<u8>>> {
        SealedDisk::new(Memory(Some(segment)), key).read()
    }

    #[test]
    fn the_key_alone_opens_a_segment() {
        let whole = b"the first secret, the second, the third".to_vec();
        let sealed = written(key(1));
        assert!(!sealed.windows(5).any(|bytes| bytes == b"secon" || bytes == b"secre"));
        assert_eq!(read(sealed.clone(), key(1)).unwrap().unwrap(), whole);
        let why = |key| read(sealed.clone(), key).unwrap_err().to_string();
        assert!(why(key(2)).contains("does not open it"));
        assert!(why(None).contains("no journal_key_file"));
        assert_ne!(written(key(1)), sealed, "a nonce was used twice");
        let plain = written(None);
        assert_eq!(plain, whole);
        assert_eq!(read(plain, key(1)).unwrap().unwrap(), whole, "from before there was a key");
    }

    #[test]
    fn an_empty_segment_and_one_of_many_records_are_read() {
        for len in [0, 1, RECORD_BYTES, RECORD_BYTES + 1, 2 * RECORD_BYTES + 7] {
            let content: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
            let mut disk = SealedDisk::new(Memory::default(), key(3));
            disk.replace(&content).unwrap();
            assert!(disk.read().unwrap().unwrap() == content, "{len}");
        }
    }

    /// The reader of the segment sees all intact records, and then bytes that are no frame.
    #[test]
    fn what_is_intact_is_read() {
        let sealed = written(key(1));
        let second = b"the first secret, the second";
        let cut = read(sealed[..sealed.len() - 3].to_vec(), key(1)).unwrap().unwrap();
        assert!(cut.starts_with(second) && cut.len() < second.len() + HEADER_LEN);
        for at in [sealed.len() - 1, sealed.len() - 60] {
            let mut flipped = sealed.clone();
            flipped[at] ^= 4;
            let read = read(flipped, key(1)).unwrap().unwrap();
            assert!(read.starts_with(b"the first secret"), "{at}");
            assert!(!read.ends_with(b", the third"), "{at}");
        }
    }

    #[test]
    fn records_of_another_segment_or_place_are_refused() {
        let (one, other) = (written(key(1)), written(key(1)));
        let header = MAGIC.len() + 16;
        let first = FRAMES.decode::<Sealed>(&one[header..]).unwrap().unwrap().1;
        let exchanged = [&one[..header + first], &other[header + first..]].concat();
        let content = read(exchanged, key(1)).unwrap().unwrap();
        assert!(content.starts_with(b"the first secret") && !content.ends_with(b", the third"));
        let second = FRAMES.decode::<Sealed>(&one[header + first..]).unwrap().unwrap().1;
        let without = [&one[..header + first], &one[header + first + second..]].concat();
        let content = read(without, key(1)).unwrap().unwrap();
        assert!(!content.ends_with(b", the third"), "a record was left out");
    }
}
