//! A token rule that limits how often words may come. `{"hmm": 1}` allows a single "hmm".

use std::sync::Arc;

use playhouse::{
    api::{TextCodec, TokenId},
    token_rules::{NextToken, RequestRule, TokenRule, TokensSoFar, Vocabulary},
};
use serde_json::Value;

const ACCEPTED: &str = "an object with words of this model, and how often each may come";

/// The rule, for one model.
pub(crate) struct AtMost {
    codec: Arc<dyn TextCodec>,
}

/// The rule, for one request: tokens, and how often each may come.
struct Counted(Vec<(TokenId, usize)>);

impl AtMost {
    pub(crate) fn new(vocabulary: &Vocabulary<'_>) -> Self {
        Self { codec: vocabulary.codec.clone() }
    }

    /// Returns the token of a word, if the model knows the word.
    fn token(&self, word: &str) -> Option<TokenId> {
        match self.codec.encode(word, false).ok()?[..] {
            [token] if !self.codec.is_special(token) => Some(token),
            _ => None,
        }
    }
}

impl TokenRule for AtMost {
    fn for_request(&self, argument: &Value) -> Result<Box<dyn RequestRule>, String> {
        let words = argument.as_object().ok_or(ACCEPTED)?;
        let counted = words
            .iter()
            .map(|(word, times)| Some((self.token(word)?, usize::try_from(times.as_u64()?).ok()?)));
        Ok(Box::new(Counted(counted.collect::<Option<_>>().ok_or(ACCEPTED)?)))
    }
}

impl RequestRule for Counted {
    fn restrict(&self, tokens: TokensSoFar<'_>, next: &mut NextToken) {
        for &(token, times) in &self.0 {
            if tokens.output.iter().filter(|past| **past == token).count() >= times {
                next.forbid(token);
            }
        }
    }
}
