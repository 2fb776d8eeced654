//! The model's tokens as llguidance takes them.

use playhouse_actors::{
    logic::ids::TokenId,
    ports::{GrammarError, TextCodec},
};
use toktrie::{ApproximateTokEnv, TokEnv, TokRxInfo, TokTrie};

/// The library's trie holds no longer ones; no text needs a token that long.
const MAX_TOKEN_BYTES: usize = 1_000;

/// The tokens' bytes in a trie, and which of them are special.
pub(super) struct Vocabulary {
    pub(super) tokens: TokEnv,
    /// Spelling and id, longest spelling first.
    special: Vec<(String, TokenId)>,
}

impl Vocabulary {
    /// The `vocab_size` tokens that the model has logits for. Those that `codec` does not know (a
    /// padded embedding) have no bytes, so that no grammar allows them.
    ///
    /// # Errors
    /// [`GrammarError::Invalid`] when no token ends an output: one that is complete could not stop.
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
            // What ends an output is never a part of its text.
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
        special.retain(|(piece, _)| !piece.is_empty());
        special.sort_by_key(|(piece, _)| std::cmp::Reverse(piece.len()));
        let info = TokRxInfo::new(vocab_size, end);
        let trie = TokTrie::from(&info, &words).with_eos_tokens(&ends);
        // Its tokenization is approximate, which matters to none who do not force tokens.
        Ok(Self { tokens: std::sync::Arc::new(ApproximateTokEnv::new(trie)), special })
    }

    /// The first special token spelled out in `text`: where it begins, its length in bytes, its id.
    pub(super) fn find_special(&self, text: &str) -> Option<(usize, usize, TokenId)> {
        let found = self.special.iter().filter_map(|(piece, token)| {
            text.find(piece.as_str()).map(|start| (start, piece.len(), *token))
        });
        found.min_by_key(|&(start, len, _)| (start, std::cmp::Reverse(len)))
    }
}
