//! Decodes tokens to text, all together or one at a time.
//!
//! Two families of tokenizers are decoded exactly and in constant time for each token: byte-level
//! BPE ([`byte_level`]) and sentencepiece models with byte fallback ([`byte_fallback`]). The tokens
//! of all others go through a window over the tokenizer's own decoder ([`window`]).
mod byte_fallback;
mod byte_level;
mod family;
#[cfg(test)]
mod tests;
mod utf8;
mod window;

use std::sync::Arc;

use playhouse_actors::ports::{DecodeOptions, IncrementalDecoder};
use tokenizers::Tokenizer;

use byte_fallback::ByteFallbackDecoder;
use byte_level::ByteLevelDecoder;
pub(super) use byte_level::spelled;
pub(super) use family::Family;
use window::WindowDecoder;

/// The character that replaces bytes that are not UTF-8.
const REPLACEMENT: char = '\u{FFFD}';

/// Returns a decoder for the tokens that follow `prompt`.
///
/// The output completes a character that the prompt leaves unfinished.
pub(super) fn incremental(
    tokenizer: &Arc<Tokenizer>,
    family: &Family,
    prompt: &[u32],
    options: DecodeOptions,
) -> Box<dyn IncrementalDecoder> {
    let pieces = Pieces {
        tokenizer: Arc::clone(tokenizer),
        skip_special_tokens: options.skip_special_tokens,
    };
    match family {
        Family::ByteLevel => Box::new(ByteLevelDecoder::new(pieces, prompt)),
        Family::ByteFallback(stages) => {
            Box::new(ByteFallbackDecoder::new(pieces, stages.clone(), prompt))
        }
        Family::Other => Box::new(WindowDecoder::new(pieces, options, prompt)),
    }
}

/// Returns the text of a whole sequence. Ids that the tokenizer does not know have no text.
pub(super) fn decode(
    tokenizer: &Tokenizer,
    tokens: &[u32],
    skip_special_tokens: bool,
) -> tokenizers::Result<String> {
    // Some decoders of the library cannot take an empty sequence.
    let any_text =
        tokens.iter().any(|&token| visible_piece(tokenizer, skip_special_tokens, token).is_some());
    if any_text { tokenizer.decode(tokens, skip_special_tokens) } else { Ok(String::new()) }
}

/// Returns the spelling of a token, unless the token is unknown or left out of the text.
fn visible_piece(tokenizer: &Tokenizer, skip_special_tokens: bool, token: u32) -> Option<String> {
    let piece = tokenizer.id_to_token(token)?;
    let skipped = skip_special_tokens && tokenizer.get_added_vocabulary().is_special_token(&piece);
    (!skipped).then_some(piece)
}

/// The tokens of one request, as their vocabulary spells them.
struct Pieces {
    tokenizer: Arc<Tokenizer>,
    skip_special_tokens: bool,
}

impl Pieces {
    fn visible(&self, token: u32) -> Option<String> {
        visible_piece(&self.tokenizer, self.skip_special_tokens, token)
    }
}
