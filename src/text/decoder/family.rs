//! The decoder family of a tokenizer, and its tokens as bytes.

use tokenizers::decoders::DecoderWrapper;
use tokenizers::{Decoder, Tokenizer};

use super::byte_fallback::{self, Stages};
use super::byte_level;

/// How tokens become text.
#[derive(Clone)]
pub(in crate::text) enum Family {
    /// Tokens are bytes, spelled in GPT-2's printable alphabet.
    ByteLevel,
    /// Tokens are text with `▁` for spaces, and `<0xE2>` for single bytes.
    ByteFallback(Stages),
    /// Only the tokenizer's own decoder can decode them.
    Other,
}

impl Family {
    /// Returns the family, read from the tokenizer's decoder.
    pub(in crate::text) fn of(tokenizer: &Tokenizer) -> Self {
        let Some(decoder) = tokenizer.get_decoder() else { return Self::Other };
        let steps = match decoder {
            DecoderWrapper::Sequence(sequence) => sequence.get_decoders(),
            single => std::slice::from_ref(single),
        };
        match steps {
            [DecoderWrapper::ByteLevel(_)] => Self::ByteLevel,
            steps => Stages::of(steps).map_or(Self::Other, Self::ByteFallback),
        }
    }

    /// Returns the bytes that a token stands for inside a text; empty for an unknown id.
    pub(in crate::text) fn token_bytes(&self, tokenizer: &Tokenizer, token: u32) -> Vec<u8> {
        let Some(piece) = tokenizer.id_to_token(token) else { return Vec::new() };
        match self {
            Self::ByteLevel => byte_level::bytes(&piece),
            Self::ByteFallback(stages) => match byte_fallback::byte(&piece) {
                Some(byte) => vec![byte],
                None => stages.replace(piece).into_bytes(),
            },
            Self::Other => match tokenizer.get_decoder() {
                Some(DecoderWrapper::Metaspace(metaspace)) => {
                    piece.replace(metaspace.get_replacement(), " ").into_bytes()
                }
                Some(decoder) => {
                    // The piece is decoded after another token, because its leading space would be
                    // lost at the start.
                    let chain = decoder.decode_chain(vec![piece.clone(), piece.clone()]);
                    let last = chain.ok().and_then(|pieces| pieces.into_iter().nth(1));
                    last.unwrap_or(piece).into_bytes()
                }
                None => piece.into_bytes(),
            },
        }
    }
}
