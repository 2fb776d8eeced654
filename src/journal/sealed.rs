//! Encryption of journals and recordings.
//!
//! ```text
//! magic [8] │ id of the file [16] │ frames of `Sealed`
//! ```
//!
//! The cipher is XChaCha20-Poly1305 with a random nonce for each record
//! (<https://datatracker.ietf.org/doc/html/draft-irtf-cfrg-xchacha-03>). A record is bound to its
//! file and to its place there. So without a key, records cannot be read, changed, moved or
//! exchanged. Files from before there was a key are read as they are.

use std::{
    borrow::Cow,
    io::{Error, ErrorKind, Result},
};

use chacha20poly1305::{
    XChaCha20Poly1305, XNonce,
    aead::{Aead as _, Generate as _, Payload},
};
use playhouse_actors::codec::{Frames, HEADER_LEN, MAX_PAYLOAD_LEN};
use serde::{Deserialize, Serialize};

use super::keys::Keys;

const MAGIC: &[u8; 8] = b"PLAYHJS1";
const FRAMES: Frames = Frames { version: 1, max_len: MAX_PAYLOAD_LEN };
const ID_LEN: usize = 16;
const NONCE_LEN: usize = 24;
/// Bytes that the cipher adds, and the largest length of a number in a frame.
const TAG_LEN: usize = 16;
const NUMBER_LEN: usize = 9;

/// Most bytes of a record.
const RECORD_BYTES: usize = 4 << 20;

type FileId = [u8; ID_LEN];

/// A record: some bytes of the file, encrypted.
#[derive(Debug, Serialize, Deserialize)]
struct Sealed {
    nonce: [u8; NONCE_LEN],
    ciphertext: Vec<u8>,
}

/// Encrypts one file from its first record on.
#[derive(Debug)]
pub(super) struct Sealer {
    keys: Keys,
    id: FileId,
    /// Number of records so far.
    num_records: u64,
}

impl Sealer {
    /// Begins a file. Returns the bytes before its first record, too.
    ///
    /// # Errors
    /// The system's error if it gives no random numbers.
    pub(super) fn begin(keys: &Keys) -> Result<(Self, Vec<u8>)> {
        let id = FileId::try_generate().map_err(Error::other)?;
        Ok((Self { keys: keys.clone(), id, num_records: 0 }, [&MAGIC[..], &id].concat()))
    }

    /// Appends the records of `bytes` to `out`.
    ///
    /// # Errors
    /// The system's error if it gives no random numbers.
    pub(super) fn seal(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<()> {
        for bytes in bytes.chunks(RECORD_BYTES) {
            let nonce = XNonce::try_generate().map_err(Error::other)?;
            let payload = Payload { msg: bytes, aad: &place(self.id, self.num_records) };
            self.num_records += 1;
            let ciphertext = self.keys.first().encrypt(&nonce, payload);
            let ciphertext = ciphertext.map_err(|_| Error::other("a record is too long"))?;
            let sealed = Sealed { nonce: nonce.into(), ciphertext };
            FRAMES.encode(&sealed, out).map_err(Error::other)?;
        }
        Ok(())
    }
}

/// Returns the most bytes of a file whose content is written by calls with these numbers of bytes.
pub(super) fn sealed_len(calls: impl IntoIterator<Item = usize>) -> usize {
    let records = calls.into_iter().map(|len| {
        let around = HEADER_LEN + NONCE_LEN + NUMBER_LEN + TAG_LEN;
        len + around * len.div_ceil(RECORD_BYTES)
    });
    MAGIC.len() + ID_LEN + records.sum::<usize>()
}

/// Returns the bytes that a record is bound to.
fn place(id: FileId, number: u64) -> [u8; ID_LEN + 8] {
    let mut place = [0; ID_LEN + 8];
    place[..ID_LEN].copy_from_slice(&id);
    place[ID_LEN..].copy_from_slice(&number.to_le_bytes());
    place
}

/// Returns the content of a file, encrypted or not. Bytes that cannot be opened follow as they
/// are, so that the reader notices a fault. `setting` names the file of keys in errors.
///
/// # Errors
/// [`ErrorKind::InvalidData`] if there is no key for an encrypted file.
pub(crate) fn open<'a>(
    file: Cow<'a, [u8]>,
    keys: Option<&Keys>,
    setting: &str,
) -> Result<Cow<'a, [u8]>> {
    match (file.strip_prefix(MAGIC), keys) {
        (None, _) => Ok(file),
        (Some(sealed), Some(keys)) => records(sealed, keys, setting).map(Cow::Owned),
        (Some(_), None) => Err(invalid(format!("it is encrypted, and there is no {setting}"))),
    }
}

/// Returns the content of a sealed file's bytes after the magic.
fn records(sealed: &[u8], keys: &Keys, setting: &str) -> Result<Vec<u8>> {
    let Some((id, mut rest)) = sealed.split_first_chunk() else {
        return Err(invalid("its first record is cut off".to_owned()));
    };
    let (mut content, mut number) = (Vec::new(), 0);
    let mut key = None;
    while !rest.is_empty() {
        let len = match FRAMES.decode::<Sealed>(rest) {
            Ok(Some((record, len))) => {
                let opened = |key: &XChaCha20Poly1305| {
                    let payload = Payload { msg: &record.ciphertext, aad: &place(*id, number) };
                    key.decrypt(&XNonce::from(record.nonce), payload).ok()
                };
                let bytes = match key {
                    Some(key) => opened(key),
                    None => keys
                        .all()
                        .find_map(|candidate| opened(candidate).inspect(|_| key = Some(candidate))),
                };
                match bytes {
                    Some(bytes) => content.extend(bytes),
                    None if number == 0 => {
                        return Err(invalid(format!("no key in {setting} opens it")));
                    }
                    None => break,
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

fn invalid(why: String) -> Error {
    Error::new(ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTING: &str = "key_file";

    fn keys(first: u8, others: &[u8]) -> Keys {
        let others: Vec<[u8; 32]> = others.iter().map(|byte| [*byte; 32]).collect();
        Keys::new(&[first; 32], &others)
    }

    fn one(key: u8) -> Keys {
        keys(key, &[])
    }

    /// Writes a file with three records.
    fn written(keys: &Keys) -> Vec<u8> {
        let (mut sealer, mut file) = Sealer::begin(keys).unwrap();
        for content in ["the first secret", ", the second", ", the third"] {
            sealer.seal(content.as_bytes(), &mut file).unwrap();
        }
        file
    }

    fn read(file: &[u8], keys: Option<&Keys>) -> Result<Vec<u8>> {
        open(Cow::Borrowed(file), keys, SETTING).map(Cow::into_owned)
    }

    #[test]
    fn the_key_alone_opens_a_file() {
        let whole = b"the first secret, the second, the third".to_vec();
        let sealed = written(&one(1));
        assert!(!sealed.windows(5).any(|bytes| bytes == b"secon" || bytes == b"secre"));
        assert_eq!(read(&sealed, Some(&one(1))).unwrap(), whole);
        let why = |keys: Option<&Keys>| read(&sealed, keys).unwrap_err().to_string();
        assert_eq!(why(Some(&one(2))), "no key in key_file opens it");
        assert_eq!(why(None), "it is encrypted, and there is no key_file");
        assert_ne!(written(&one(1)), sealed, "a nonce was used twice");
        assert_eq!(read(&whole, Some(&one(1))).unwrap(), whole, "from before there was a key");
    }

    #[test]
    fn the_first_key_encrypts_and_each_of_them_decrypts() {
        let whole = b"the first secret, the second, the third".to_vec();
        let old = written(&one(1));
        let rotated = keys(2, &[3, 1]);
        assert_eq!(read(&old, Some(&rotated)).unwrap(), whole);
        let new = written(&rotated);
        assert_eq!(read(&new, Some(&one(2))).unwrap(), whole);
        read(&new, Some(&keys(3, &[1]))).unwrap_err();
    }

    #[test]
    fn an_empty_file_and_one_of_many_records_are_read() {
        for len in [0, 1, RECORD_BYTES, RECORD_BYTES + 1, 2 * RECORD_BYTES + 7] {
            let content: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
            let (mut sealer, mut file) = Sealer::begin(&one(3)).unwrap();
            sealer.seal(&content, &mut file).unwrap();
            assert!(read(&file, Some(&one(3))).unwrap() == content, "{len}");
            let most = sealed_len([len]);
            assert!((most.saturating_sub(100)..=most).contains(&file.len()), "{len}");
        }
    }

    /// The reader of the file sees all intact records, and then bytes that are no frame.
    #[test]
    fn what_is_intact_is_read() {
        let sealed = written(&one(1));
        let second = b"the first secret, the second";
        let cut = read(&sealed[..sealed.len() - 3], Some(&one(1))).unwrap();
        assert!(cut.starts_with(second) && cut.len() < second.len() + HEADER_LEN);
        for at in [sealed.len() - 1, sealed.len() - 60] {
            let mut flipped = sealed.clone();
            flipped[at] ^= 4;
            let read = read(&flipped, Some(&one(1))).unwrap();
            assert!(read.starts_with(b"the first secret"), "{at}");
            assert!(!read.ends_with(b", the third"), "{at}");
        }
    }

    #[test]
    fn records_of_another_file_or_place_are_refused() {
        let (file, other) = (written(&one(1)), written(&one(1)));
        let header = MAGIC.len() + ID_LEN;
        let first = FRAMES.decode::<Sealed>(&file[header..]).unwrap().unwrap().1;
        let exchanged = [&file[..header + first], &other[header + first..]].concat();
        let content = read(&exchanged, Some(&one(1))).unwrap();
        assert!(content.starts_with(b"the first secret") && !content.ends_with(b", the third"));
        let second = FRAMES.decode::<Sealed>(&file[header + first..]).unwrap().unwrap().1;
        let without = [&file[..header + first], &file[header + first + second..]].concat();
        let content = read(&without, Some(&one(1))).unwrap();
        assert!(!content.ends_with(b", the third"), "a record was left out");
    }
}
