//! The model's tokens as llguidance takes them.

use std::{cmp::Reverse, collections::BTreeMap};

use playhouse_actors::{
    logic::request::ids::TokenId,
    ports::{GrammarError, TextCodec},
};
use toktrie::{ApproximateTokEnv, TokEnv, TokRxInfo, TokTrie};

/// The library's trie holds no longer tokens. No text needs a token that long.
const MAX_TOKEN_BYTES: usize = 1_000;

/// The tokens' bytes in a trie, and the special tokens.
pub(super) struct Vocabulary {
    pub(super) tokens: TokEnv,
    /// Spelling and id by the spelling's first byte, the longest first.
    special: BTreeMap<u8, Vec<(String, TokenId)>>,
}

impl Vocabulary {
    /// Returns the `vocab_size` tokens that the model has logits for. Tokens that `codec` does not
    /// know (a padded embedding) have no bytes, so no grammar allows them.
    ///
    /// # Errors
    /// [`GrammarError::Invalid`] when no token ends an output, because a complete output could not
    /// stop.
    pub(super) fn new(
        codec: &dyn TextCodec,
        vocab_size: u32,
        eos_token_ids: &[TokenId],
    ) -> Result<Self, GrammarError> {
        let ends: Vec<TokenId> =
            eos_token_ids.iter().copied().filter(|&token| token < vocab_size).collect();
        let Some(&end) = ends.first() else {
            return Err(GrammarError::Invalid(
                "structured outputs need a model with an end-of-sequence token".to_owned(),
            ));
        };
        let mut special = Vec::new();
        let bytes_of = |token: TokenId| {
            // A token that ends an output is never a part of its text.
            if !codec.is_special(token) && !ends.contains(&token) {
                return codec.token_bytes(token);
            }
            let piece = codec.token_piece(token).unwrap_or_default();
            let marked = [&[TokTrie::SPECIAL_TOKEN_MARKER], piece.as_bytes()].concat();
            special.push((piece, token));
            marked
        };
        let mut words: Vec<Vec<u8>> = (0..vocab_size).map(bytes_of).collect();
        words.iter_mut().filter(|word| word.len() > MAX_TOKEN_BYTES).for_each(Vec::clear);
        special.sort_by_key(|(piece, _)| Reverse(piece.len()));
        let mut by_first: BTreeMap<u8, Vec<(String, TokenId)>> = BTreeMap::new();
        for (piece, token) in special {
            if let Some(&first) = piece.as_bytes().first() {
                by_first.entry(first).or_default().push((piece, token));
            }
        }
        let info = TokRxInfo::new(vocab_size, end);
        let trie = TokTrie::from(&info, &words).with_eos_tokens(&ends);
        // Its tokenization is approximate, which matters only when tokens are forced.
        let tokens = std::sync::Arc::new(ApproximateTokEnv::new(trie));
        Ok(Self { tokens, special: by_first })
    }

    /// Returns the longest special token whose spelling `text` begins with: its length in bytes and
    /// its id.
    pub(super) fn special_at(&self, text: &str) -> Option<(usize, TokenId)> {
        let special = self.special.get(text.as_bytes().first()?)?;
        let found = special.iter().find(|(piece, _)| text.starts_with(piece.as_str()));
        found.map(|(piece, token)| (piece.len(), *token))
    }
}
