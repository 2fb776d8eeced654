//! Characters from bytes that arrive in pieces.

use super::REPLACEMENT;

/// Holds back the bytes of an unfinished character, at most three.
///
/// Invalid bytes become U+FFFD where `String::from_utf8_lossy` over all bytes would put it.
#[derive(Debug, Default)]
pub(super) struct Utf8Stream {
    pending: Vec<u8>,
}

impl Utf8Stream {
    /// Appends to `text` the characters that these bytes complete.
    pub(super) fn push(&mut self, bytes: &[u8], text: &mut String) {
        self.pending.extend_from_slice(bytes);
        let mut done = 0;
        for chunk in self.pending.utf8_chunks() {
            text.push_str(chunk.valid());
            done += chunk.valid().len();
            // Only the last chunk can be invalid because further bytes are missing.
            let is_last = done + chunk.invalid().len() == self.pending.len();
            if chunk.invalid().is_empty() || (is_last && is_unfinished(chunk.invalid())) {
                break;
            }
            text.push(REPLACEMENT);
            done += chunk.invalid().len();
        }
        self.pending.drain(..done);
    }

    /// Ends the text. An unfinished character becomes one U+FFFD.
    pub(super) fn flush(&mut self) -> String {
        let unfinished = !std::mem::take(&mut self.pending).is_empty();
        if unfinished { REPLACEMENT.to_string() } else { String::new() }
    }
}

/// Returns whether further bytes could still make this a character.
pub(super) fn is_unfinished(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes)
        .is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]
        #[test]
        fn equals_the_lossy_conversion_of_all_bytes(
            pieces in prop::collection::vec(
                prop_oneof![
                    prop::collection::vec(any::<u8>(), 0..6),
                    prop::collection::vec(
                        prop::sample::select(b"a\xc3\xa9\xe5\x8f\xab\xf0\x9f\xa6\x80\xff".to_vec()),
                        0..6,
                    ),
                ],
                0..12,
            ),
        ) {
            let (mut stream, mut text) = (Utf8Stream::default(), String::new());
            for piece in &pieces {
                stream.push(piece, &mut text);
                prop_assert!(stream.pending.len() <= 3);
            }
            text.push_str(&stream.flush());
            let all = pieces.concat();
            prop_assert_eq!(text, String::from_utf8_lossy(&all));
        }
    }
}
