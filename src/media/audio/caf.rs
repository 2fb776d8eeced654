//! The packet table of a Core Audio file (CAF, by Apple's specification). The decoder keeps 32
//! bytes for each packet, whose entry may have a single one, so the table has a bound.

/// The first bytes of a file.
pub(super) const MAGIC: &[u8] = b"caff";

/// Packets that a file may have. An hour of AAC or ALAC has fewer.
const PACKETS_MAX: u64 = 1 << 19;

/// The bytes before the first chunk, and of the head of a chunk.
const FILE_HEAD: usize = 8;
const CHUNK_HEAD: usize = 12;

/// The places of bytes and frames of a packet in the description of a sound. Where one is 0, the
/// table has an integer for each packet.
const SIZES: [usize; 2] = [16, 20];

/// The bytes of a table before its integers, and of the longest integer.
const TABLE_HEAD: usize = 24;
const INTEGER_MAX: usize = 9;

/// Returns whether a Core Audio file has so many packets that their table takes too much memory.
/// Chunks end where the decoder ends them: some have the length of their content, whatever their
/// size says.
pub(super) fn is_too_large(file: &[u8]) -> bool {
    if !file.starts_with(MAGIC) {
        return false;
    }
    let (mut at, mut num_packets, mut num_integers) = (FILE_HEAD, 0u64, 0u64);
    while let Some((name, size)) = head(file, at) {
        let content = at + CHUNK_HEAD;
        let len = match &name {
            b"desc" => {
                let varies = |place: &&usize| word(file, content + **place) == Some(0);
                num_integers = SIZES.iter().filter(varies).count() as u64;
                usize::try_from(size).ok()
            }
            b"pakt" => {
                let count = long(file, content).and_then(|count| u64::try_from(count).ok());
                num_packets = num_packets.saturating_add(count.unwrap_or(0));
                if num_packets > PACKETS_MAX {
                    return true;
                }
                let integers = num_integers * count.unwrap_or(0);
                integers_end(file, content + TABLE_HEAD, integers).map(|end| end - content)
            }
            b"chan" => word(file, content + 8).map(|count| 12 + 20 * count as usize),
            // Of an unknown size.
            b"data" if size == -1 => Some(4),
            _ => usize::try_from(size).ok(),
        };
        let Some(next) = len.and_then(|len| content.checked_add(len)) else { return false };
        at = next;
    }
    false
}

/// Returns the name and the size of the chunk at a place.
fn head(file: &[u8], at: usize) -> Option<([u8; 4], i64)> {
    Some((*file.get(at..)?.first_chunk::<4>()?, long(file, at.checked_add(4)?)?))
}

/// Returns the end of `count` integers of variable length. `None` if the file ends before.
fn integers_end(file: &[u8], begin: usize, count: u64) -> Option<usize> {
    let mut at = begin;
    for _ in 0..count {
        let bytes = file.get(at..)?.iter().take(INTEGER_MAX);
        at += bytes.take_while(|byte| **byte >= 0x80).count() + 1;
    }
    (at <= file.len()).then_some(at)
}

fn word(file: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*file.get(at..)?.first_chunk::<4>()?))
}

fn long(file: &[u8], at: usize) -> Option<i64> {
    Some(i64::from_be_bytes(*file.get(at..)?.first_chunk::<8>()?))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::decode;
    use super::*;

    fn read(name: &str) -> Vec<u8> {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fidelity/speech");
        std::fs::read(folder.join(name)).unwrap()
    }

    /// Returns a file with chunks of these names and contents.
    fn file(chunks: &[(&[u8; 4], &[u8])]) -> Vec<u8> {
        let mut file = b"caff\0\x01\0\0".to_vec();
        for &(name, content) in chunks {
            file.extend_from_slice(name);
            file.extend_from_slice(&(content.len() as u64).to_be_bytes());
            file.extend_from_slice(content);
        }
        file
    }

    /// Returns the description of a sound whose packets have these bytes and frames.
    fn description(bytes: u32, frames: u32) -> Vec<u8> {
        let mut content = 16_000f64.to_be_bytes().to_vec();
        content.extend_from_slice(b"lpcm\0\0\0\0");
        for value in [bytes, frames, 1, 24] {
            content.extend_from_slice(&value.to_be_bytes());
        }
        content
    }

    fn table(count: u64, integers: &[u8]) -> Vec<u8> {
        let mut content = count.to_be_bytes().to_vec();
        content.extend_from_slice(&[0; 16]);
        content.extend_from_slice(integers);
        content
    }

    #[test]
    fn tables_of_many_packets_are_refused() {
        assert!(!is_too_large(&read("formats/alac.caf")));
        assert!(!is_too_large(&read("rising.wav")));
        let many = table(PACKETS_MAX + 1, &[1; 8]);
        let description = description(0, 4096);
        let large = file(&[(b"desc", &description), (b"pakt", &many)]);
        assert!(is_too_large(&large));
        let why = decode(large.into(), 16_000, 60).unwrap_err().to_string();
        assert!(why.contains("tables of samples are too large"), "{why}");
        let half = table(PACKETS_MAX, &[1; 8]);
        assert!(!is_too_large(&file(&[(b"desc", &description), (b"pakt", &half)])));
    }

    /// The decoder reads on behind the last integer, and not where the size says.
    #[test]
    fn a_table_behind_another_is_found() {
        let many = table(PACKETS_MAX + 1, &[1; 8]);
        let hidden = file(&[(b"pakt", &many)])[FILE_HEAD..].to_vec();
        let integers = [&[0x81, 0x01, 0x02][..], &hidden].concat();
        let (first, description) = (table(2, &integers), description(0, 4096));
        let both = file(&[(b"desc", &description), (b"pakt", &first)]);
        assert!(is_too_large(&both));
    }

    #[test]
    fn a_packet_of_too_many_frames_is_refused() {
        let description = description(3, u32::MAX);
        let large = file(&[(b"desc", &description), (b"data", &[0; 64])]);
        let why = decode(large.into(), 16_000, 60).unwrap_err().to_string();
        assert!(why.contains("a packet of 1 channels and 4294967295 frames"), "{why}");
    }

    #[test]
    fn other_bytes_before_the_first_are_refused() {
        let whole = file(&[(b"desc", &description(3, 1)), (b"data", &[0; 64])]);
        assert_eq!(decode(whole.as_slice().into(), 16_000, 60).unwrap().len(), 20);
        let hidden = [&[0_u8][..], &whole].concat();
        assert!(decode(hidden.into(), 16_000, 60).is_err());
    }
}
