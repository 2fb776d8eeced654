//! Any other tokenizer: its own decoder over a short window of tokens.
//!
//! The window begins with the tokens whose text was shown last. They give the new tokens their
//! context (a space between words). The text of the whole window, without the text of that
//! beginning, is new. This is the scheme of vLLM and of Text Generation Inference.

use playhouse_actors::ports::{DecodeOptions, IncrementalDecoder, TextError};

use super::{Pieces, REPLACEMENT, decode};

/// Prompt tokens that give the first output token its context.
const CONTEXT_TOKENS: usize = 6;
/// Most tokens that are held back, so that the window stays short whatever is generated.
const HELD_TOKENS_MAX: usize = 64;

/// Decodes the tokens of any tokenizer one at a time.
pub(super) struct WindowDecoder {
    pieces: Pieces,
    spaces_between_special_tokens: bool,
    tokens: Vec<u32>,
    /// How many of them are context, already shown.
    context_len: usize,
    /// The text of the context.
    context: String,
    /// Whether the last token was an added one.
    after_added_token: bool,
}

impl WindowDecoder {
    pub(super) fn new(pieces: Pieces, options: DecodeOptions, prompt: &[u32]) -> Self {
        let visible = prompt.iter().rev().filter(|&&token| pieces.visible(token).is_some());
        let mut tokens: Vec<u32> = visible.take(CONTEXT_TOKENS).copied().collect();
        tokens.reverse();
        let mut decoder = Self {
            spaces_between_special_tokens: options.skip_special_tokens
                || options.spaces_between_special_tokens,
            pieces,
            context_len: tokens.len(),
            tokens,
            context: String::new(),
            after_added_token: false,
        };
        // A context that cannot be decoded is empty. The tokens after it report their own errors.
        decoder.context = decoder.text().unwrap_or_default();
        decoder
    }

    fn text(&self) -> Result<String, TextError> {
        decode(&self.pieces.tokenizer, &self.tokens, self.pieces.skip_special_tokens)
            .map_err(|error| TextError::Tokenizer(error.to_string()))
    }

    /// Returns the part of `text` that is not context.
    fn new_text(&self, text: &str) -> String {
        match text.strip_prefix(self.context.as_str()) {
            Some(new) => new.to_owned(),
            // A decoder may rewrite its earlier text. Then the best result shows no letter twice.
            None => text.chars().skip(self.context.chars().count()).collect(),
        }
    }

    /// Makes the new tokens the context of later ones.
    fn advance(&mut self) -> Result<(), TextError> {
        self.tokens.drain(..self.context_len);
        self.context_len = self.tokens.len();
        self.context = self.text()?;
        Ok(())
    }

    /// Returns the spelling of an added token that follows another, because no space may come
    /// between them.
    fn joined_added_token(&mut self, token: u32) -> Option<String> {
        let added = self.pieces.tokenizer.get_added_vocabulary().get_added_tokens_decoder();
        let content = added.get(&token).map(|added| added.content.clone());
        let after_added_token = std::mem::replace(&mut self.after_added_token, content.is_some());
        content.filter(|_| after_added_token && !self.spaces_between_special_tokens)
    }
}

impl IncrementalDecoder for WindowDecoder {
    fn push(&mut self, token: u32) -> Result<String, TextError> {
        let joined = self.joined_added_token(token);
        if self.pieces.visible(token).is_none() {
            return Ok(String::new());
        }
        self.tokens.push(token);
        let text = self.text()?;
        let new = self.new_text(&text);
        let held = self.tokens.len() - self.context_len;
        if new.is_empty() {
            if held > HELD_TOKENS_MAX {
                self.tokens.truncate(self.context_len);
            }
            return Ok(joined.unwrap_or_default());
        }
        if new.ends_with(REPLACEMENT) && held <= HELD_TOKENS_MAX && joined.is_none() {
            return Ok(String::new());
        }
        self.advance()?;
        Ok(joined.unwrap_or(new))
    }

    fn flush(&mut self) -> String {
        let text = self.text().map(|text| self.new_text(&text)).unwrap_or_default();
        self.tokens.clear();
        (self.context_len, self.context) = (0, String::new());
        text
    }
}
