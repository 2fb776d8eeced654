//! Byte-level BPE (GPT-2 and later models): each token is a string of bytes.

use playhouse_actors::ports::{IncrementalDecoder, TextError};

use super::Pieces;
use super::utf8::Utf8Stream;

/// Most bytes of an unfinished character.
const UNFINISHED_BYTES_MAX: usize = 3;

/// Decodes byte-level tokens one at a time.
pub(super) struct ByteLevelDecoder {
    pieces: Pieces,
    stream: Utf8Stream,
}

impl ByteLevelDecoder {
    pub(super) fn new(pieces: Pieces, prompt: &[u32]) -> Self {
        // UTF-8 synchronizes itself: the last few bytes show whether a character is unfinished.
        let mut tail = Vec::new();
        for &token in prompt.iter().rev() {
            if tail.len() > UNFINISHED_BYTES_MAX {
                break;
            }
            if let Some(piece) = pieces.visible(token) {
                tail.splice(..0, bytes(&piece));
            }
        }
        let mut stream = Utf8Stream::default();
        stream.push(&tail, &mut String::new());
        Self { pieces, stream }
    }
}

impl IncrementalDecoder for ByteLevelDecoder {
    fn push(&mut self, token: u32) -> Result<String, TextError> {
        let mut text = String::new();
        if let Some(piece) = self.pieces.visible(token) {
            self.stream.push(&bytes(&piece), &mut text);
        }
        Ok(text)
    }

    fn flush(&mut self) -> String {
        self.stream.flush()
    }
}

/// Returns the bytes that a piece spells. A piece outside the alphabet (an added token) is plain
/// text.
pub(super) fn bytes(piece: &str) -> Vec<u8> {
    let spelled: Option<Vec<u8>> = piece.chars().map(byte).collect();
    spelled.unwrap_or_else(|| piece.as_bytes().to_vec())
}

/// Returns the piece that spells `bytes`.
pub(in crate::text) fn spelled(bytes: &[u8]) -> String {
    let character = |byte: &u8| {
        let code = match u32::from(*byte) {
            code @ (0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF) => code,
            code @ 0..=0x20 => 0x100 + code,
            0xAD => 0x143,
            code => 0x121 + code - 0x7F,
        };
        char::from_u32(code).unwrap_or_default()
    };
    bytes.iter().map(character).collect()
}

/// Returns the byte of a character in GPT-2's alphabet. Printable Latin-1 stands for itself, and
/// the 68 other bytes follow U+0100 in order (Radford et al. 2019, `bytes_to_unicode` of the
/// released encoder).
fn byte(c: char) -> Option<u8> {
    let code = u32::from(c);
    let code = match code {
        0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF => code,
        0x100..=0x120 => code - 0x100,
        0x121..=0x142 => code - 0x121 + 0x7F,
        0x143 => 0xAD,
        _ => return None,
    };
    u8::try_from(code).ok()
}

#[cfg(test)]
mod tests {
    use tokenizers::pre_tokenizers::byte_level::ByteLevel;
    use tokenizers::{OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer};

    use super::*;

    #[test]
    fn every_byte_is_spelled() {
        for byte in 0..=u8::MAX {
            assert_eq!(bytes(&spelled(&[byte])), [byte]);
        }
    }

    #[test]
    fn the_alphabet_is_the_library_s() {
        assert_eq!(ByteLevel::alphabet().into_iter().filter_map(byte).count(), 256);
        let every_byte_below_0xc2_and_more: String =
            (0..0x800).filter_map(char::from_u32).collect();
        let mut split = PreTokenizedString::from(every_byte_below_0xc2_and_more.as_str());
        ByteLevel::new(false, false, false).pre_tokenize(&mut split).unwrap();
        let spelled: String = split
            .get_splits(OffsetReferential::Original, OffsetType::Byte)
            .into_iter()
            .map(|(text, ..)| text)
            .collect();
        assert_eq!(bytes(&spelled), every_byte_below_0xc2_and_more.as_bytes());
    }

    #[test]
    fn pieces_outside_the_alphabet_are_text() {
        assert_eq!(bytes("Ġworld"), b" world");
        assert_eq!(bytes("<a b>"), b"<a b>", "a space is not in the alphabet");
        assert_eq!(bytes("终"), "终".as_bytes());
    }
}
