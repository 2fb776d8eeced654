//! The simulator's tokenizer: tokens are short byte strings, some of them halves of characters.

use std::sync::{Arc, LazyLock};

use super::media::Processor;
use crate::{
    logic::request::ids::TokenId,
    ports::{ChatPrompt, DecodeOptions, IncrementalDecoder, MediaProcessor, TextCodec, TextError},
};

/// The bytes of each token.
const PIECES: [&[u8]; 48] = [
    b"</s>",
    b"<eot>",
    b"a",
    b"b",
    b"c",
    b"d",
    b"e",
    b"f",
    b"g",
    b"h",
    b"i",
    b"j",
    b"k",
    b"l",
    b"m",
    b"n",
    b"o",
    b"p",
    b"q",
    b"r",
    b"s",
    b"t",
    b"u",
    b"v",
    b"w",
    b"x",
    b"y",
    b"z",
    b" ",
    b"\n",
    b".",
    b"ab",
    b"bc",
    b"END",
    b"EN",
    b"D",
    b" the",
    b"aaa",
    b"\xc3\xa9",
    b"\xe7\xbb\x88",
    b"\xe7",
    b"\xbb\x88",
    b"\xf0\x9f",
    b"\xa6\x80",
    b"\xe7\xbb",
    b"\x88",
    b"\xff",
    b"",
];

/// Number of tokens in the vocabulary.
pub const VOCAB_SIZE: u32 = PIECES.len() as u32;

/// Tokens that end an output, the first of them without a stop reason.
pub const EOS_TOKENS: [TokenId; 2] = [0, 1];

/// Number of special tokens. Their text appears only if special tokens are not skipped.
const NUM_SPECIAL: u32 = 2;

/// Returns the bytes of a token within a text.
#[must_use]
pub fn bytes_of(token: TokenId, skip_special_tokens: bool) -> &'static [u8] {
    let is_left_out = skip_special_tokens && token < NUM_SPECIAL;
    PIECES.get(token as usize).copied().filter(|_| !is_left_out).unwrap_or_default()
}

/// A tokenizer without state.
#[derive(Debug, Clone, Copy)]
pub struct Vocabulary;

impl TextCodec for Vocabulary {
    fn media(&self) -> Option<&Arc<dyn MediaProcessor>> {
        static MEDIA: LazyLock<Arc<dyn MediaProcessor>> = LazyLock::new(|| Arc::new(Processor));
        Some(&MEDIA)
    }

    fn vocab_size(&self) -> usize {
        PIECES.len()
    }

    /// Returns one token for each byte. Its value hardly matters.
    fn encode(&self, text: &str, _: bool) -> Result<Vec<TokenId>, TextError> {
        let token = |byte: u8| NUM_SPECIAL + u32::from(byte) % (VOCAB_SIZE - NUM_SPECIAL);
        Ok(text.bytes().map(token).collect())
    }

    fn decode(&self, tokens: &[TokenId], skip_special_tokens: bool) -> Result<String, TextError> {
        let bytes = tokens.iter().flat_map(|&token| bytes_of(token, skip_special_tokens));
        Ok(String::from_utf8_lossy(&bytes.copied().collect::<Vec<_>>()).into_owned())
    }

    fn token_text(&self, token: TokenId) -> String {
        String::from_utf8_lossy(bytes_of(token, false)).into_owned()
    }

    fn token_bytes(&self, token: TokenId) -> Vec<u8> {
        bytes_of(token, false).to_vec()
    }

    fn token_piece(&self, token: TokenId) -> Option<String> {
        (token < VOCAB_SIZE).then(|| self.token_text(token))
    }

    fn eos_token(&self) -> Option<(String, TokenId)> {
        Some((self.token_text(EOS_TOKENS[0]), EOS_TOKENS[0]))
    }

    fn bos_token(&self) -> Option<(String, TokenId)> {
        None
    }

    fn is_special(&self, token: TokenId) -> bool {
        token < NUM_SPECIAL
    }

    fn render_chat(&self, _: &ChatPrompt) -> Result<String, TextError> {
        Err(TextError::NoChatTemplate)
    }

    fn decoder(&self, _: &[TokenId], options: DecodeOptions) -> Box<dyn IncrementalDecoder> {
        let skip_special_tokens = options.skip_special_tokens;
        Box::new(Decoder { skip_special_tokens, incomplete: Vec::new() })
    }
}

/// A decoder that holds back bytes that may become a character.
#[derive(Debug)]
struct Decoder {
    skip_special_tokens: bool,
    incomplete: Vec<u8>,
}

impl IncrementalDecoder for Decoder {
    fn push(&mut self, token: TokenId) -> Result<String, TextError> {
        self.incomplete.extend_from_slice(bytes_of(token, self.skip_special_tokens));
        let whole = whole_len(&self.incomplete);
        let text = String::from_utf8_lossy(&self.incomplete[..whole]).into_owned();
        self.incomplete.drain(..whole);
        Ok(text)
    }

    fn flush(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.incomplete)).into_owned()
    }
}

/// Returns the number of bytes whose text no further byte can change.
fn whole_len(bytes: &[u8]) -> usize {
    let mut start = 0;
    while let Err(error) = std::str::from_utf8(&bytes[start..]) {
        start += error.valid_up_to();
        match error.error_len() {
            Some(broken) => start += broken,
            None => return start,
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::rng::Rng;

    #[test]
    fn pieces_add_up_to_the_whole_text() {
        let mut rng = Rng::new(1);
        for _ in 0..2_000 {
            let tokens: Vec<_> =
                (0..12).map(|_| rng.below(u64::from(VOCAB_SIZE)) as TokenId).collect();
            let mut decoder = Vocabulary.decoder(&[], DecodeOptions::default());
            let mut text: String = tokens.iter().map(|&t| decoder.push(t).unwrap()).collect();
            text.push_str(&decoder.flush());
            assert_eq!(text, Vocabulary.decode(&tokens, true).unwrap());
        }
    }
}
