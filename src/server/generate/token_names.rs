//! The names of tokens in log-probabilities.

use std::sync::Arc;

use crate::api::TextCodec;

/// Tokens before one that may hold the beginning of its character: UTF-8 has at most 4 bytes.
const CONTEXT: usize = 4;

/// Names tokens by their text, or by `token_id:N`.
#[derive(Clone)]
pub(in crate::server) struct TokenNames {
    codec: Arc<dyn TextCodec>,
    as_token_ids: bool,
}

impl TokenNames {
    pub(in crate::server) fn new(codec: Arc<dyn TextCodec>, as_token_ids: bool) -> Self {
        Self { codec, as_token_ids }
    }

    /// Returns the name of `token`, which follows `before`.
    pub(in crate::server) fn name(&self, token: u32, before: &[u32]) -> String {
        if self.as_token_ids { format!("token_id:{token}") } else { self.text(token, before) }
    }

    /// Returns the text of `token`, which follows `before`. A token that ends within a character
    /// has no text. The token that completes the character has all of it.
    pub(in crate::server) fn text(&self, token: u32, before: &[u32]) -> String {
        let alone = self.codec.token_text(token);
        if !is_cut(&alone) {
            return alone;
        }
        let longest = before.len().min(CONTEXT);
        (1..=longest)
            .find_map(|length| self.completed(token, &before[before.len() - length..]))
            .unwrap_or_default()
    }

    /// Returns the bytes of `token`.
    pub(in crate::server) fn bytes(&self, token: u32) -> Vec<u8> {
        self.codec.token_bytes(token)
    }

    /// Returns the text that `token` adds to `context`, if a character ends with it.
    fn completed(&self, token: u32, context: &[u32]) -> Option<String> {
        let with = self.decode(&[context, &[token]].concat());
        if is_cut(&with) {
            return None;
        }
        // Tokens just before it that are pieces of the same character belong to its text.
        let pieces = context.iter().rev().take_while(|&&id| is_cut(&self.codec.token_text(id)));
        let whole = context.len() - pieces.count();
        let prefix = self.decode(&context[..whole]);
        with.strip_prefix(&prefix).map(str::to_owned)
    }

    /// Returns the text of several tokens. It is empty if the decoder fails.
    pub(in crate::server) fn decode(&self, tokens: &[u32]) -> String {
        self.codec.decode(tokens, false).unwrap_or_default()
    }
}

fn is_cut(text: &str) -> bool {
    text.ends_with('\u{FFFD}')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::turn::test_codec::ByteCodec;

    #[test]
    fn a_character_belongs_to_the_token_that_completes_it() {
        let names = TokenNames::new(Arc::new(ByteCodec), false);
        let bytes: Vec<u32> = "aé🚀".bytes().map(u32::from).collect();
        let named: Vec<String> =
            (0..bytes.len()).map(|at| names.name(bytes[at], &bytes[..at])).collect();
        assert_eq!(named, ["a", "", "é", "", "", "", "🚀"]);
        assert_eq!(names.name(0xA9, &[]), "", "nothing before it to complete");
        assert_eq!(names.bytes(0xA9), [0xA9]);
    }

    #[test]
    fn ids_where_they_are_asked_for() {
        let names = TokenNames::new(Arc::new(ByteCodec), true);
        assert_eq!(names.name(97, &[]), "token_id:97");
        assert_eq!(names.text(97, &[]), "a");
    }
}
