//! Text in, tokens out, and back: what the engine asks of a tokenizer and its chat template.

use std::ops::Range;

use serde_json::{Map, Value};
use thiserror::Error;

use crate::logic::{ids::TokenId, input::TruncationSide};

/// A model's tokenizer together with its chat template.
///
/// Every call may come from many threads at once. A token id that the tokenizer does not know
/// (models pad their embeddings) has no text: it decodes to nothing and is never an error.
pub trait TextCodec: Send + Sync + 'static {
    /// The number of tokens, added tokens included.
    fn vocab_size(&self) -> usize;

    /// The tokens of `text`; special tokens spelled out in it become those tokens.
    /// `add_special_tokens` adds what the model expects around a text (a BOS, say).
    ///
    /// # Errors
    /// [`TextError::Tokenizer`] when the tokenizer refuses the text.
    fn encode(&self, text: &str, add_special_tokens: bool) -> Result<Vec<TokenId>, TextError>;

    /// The part of `text` that is to be tokenized next, of `rest`, which is left of it: at the side
    /// that is kept when a prompt is truncated. The tokens of all parts, in the text's order, are
    /// those of the whole text, without what is added around it. Without cuts, `rest` is one part.
    ///
    /// # Errors
    /// [`TextError::Uncuttable`] when the part would be too long to be tokenized at once.
    fn next_piece(
        &self,
        _text: &str,
        rest: Range<usize>,
        _dropped: TruncationSide,
    ) -> Result<Range<usize>, TextError> {
        Ok(rest)
    }

    /// The tokens of a part that [`TextCodec::next_piece`] found.
    ///
    /// # Errors
    /// [`TextError::Tokenizer`] when the tokenizer refuses the text.
    fn encode_piece(&self, text: &str, piece: Range<usize>) -> Result<Vec<TokenId>, TextError> {
        self.encode(text.get(piece).unwrap_or_default(), false)
    }

    /// The tokens that `add_special_tokens` adds before and after a text of several parts.
    fn surround(&self) -> (Vec<TokenId>, Vec<TokenId>) {
        (Vec::new(), Vec::new())
    }

    /// The bytes of text that one token stands for at most, where that is known: a text that is
    /// longer than a context of such tokens is refused unread.
    fn max_token_bytes(&self) -> Option<usize> {
        None
    }

    /// The text of a whole sequence; bytes that are no UTF-8 become U+FFFD.
    ///
    /// # Errors
    /// [`TextError::Tokenizer`] when the tokenizer's decoder fails.
    fn decode(&self, tokens: &[TokenId], skip_special_tokens: bool) -> Result<String, TextError>;

    /// The text of one token alone, as log-probability entries show it: U+FFFD for half a
    /// character, special tokens spelled out, a sentencepiece token without its leading space.
    fn token_text(&self, token: TokenId) -> String;

    /// The exact bytes that one token stands for inside a text.
    fn token_bytes(&self, token: TokenId) -> Vec<u8>;

    /// The vocabulary's own spelling of a token (`Ġworld`), if it exists.
    fn token_piece(&self, token: TokenId) -> Option<String>;

    /// The end-of-sequence token: its text and its id.
    fn eos_token(&self) -> Option<(String, TokenId)>;

    /// The begin-of-sequence token: its text and its id.
    fn bos_token(&self) -> Option<(String, TokenId)>;

    /// Whether `skip_special_tokens` leaves this token out.
    fn is_special(&self, token: TokenId) -> bool;

    /// The prompt text of a conversation.
    ///
    /// # Errors
    /// Everything in [`TextError`] that concerns templates: all of it is the client's to see.
    fn render_chat(&self, chat: &ChatPrompt) -> Result<String, TextError>;

    /// A decoder for the tokens that follow `prompt`.
    fn decoder(&self, prompt: &[TokenId], options: DecodeOptions) -> Box<dyn IncrementalDecoder>;
}

/// How generated tokens become text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeOptions {
    /// Leave special tokens out of the text.
    pub skip_special_tokens: bool,
    /// Where a tokenizer puts spaces between tokens, put them between added tokens as well.
    pub spaces_between_special_tokens: bool,
}

impl Default for DecodeOptions {
    fn default() -> Self {
        Self { skip_special_tokens: true, spaces_between_special_tokens: true }
    }
}

/// Text from tokens, one at a time, never half a character.
pub trait IncrementalDecoder: Send {
    /// The text that became complete with this token; often empty.
    ///
    /// # Errors
    /// [`TextError::Tokenizer`] when the tokenizer's decoder fails.
    fn push(&mut self, token: TokenId) -> Result<String, TextError>;

    /// At the end: what is still held back, as decoding the whole sequence would show it.
    fn flush(&mut self) -> String;
}

/// A conversation to be rendered by a chat template.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChatPrompt {
    /// OpenAI-style messages: objects with a `role`, and `content` as text or a list of parts.
    pub messages: Vec<Value>,
    /// JSON schemas of the tools on offer.
    pub tools: Option<Vec<Value>>,
    /// Documents for retrieval-augmented templates.
    pub documents: Option<Vec<Value>>,
    /// End with the header of an assistant message.
    pub add_generation_prompt: bool,
    /// Leave the last message open, for the model to go on with it.
    pub continue_final_message: bool,
    /// A template to use instead of the model's, or the name of one of the model's.
    pub chat_template: Option<String>,
    /// Further variables for the template.
    pub chat_template_kwargs: Map<String, Value>,
}

impl ChatPrompt {
    /// Bytes of text in everything that a template may write.
    #[must_use]
    pub fn text_bytes(&self) -> usize {
        let lists = [Some(&self.messages), self.tools.as_ref(), self.documents.as_ref()];
        let values =
            lists.into_iter().flatten().flatten().chain(self.chat_template_kwargs.values());
        values.map(text_bytes).sum()
    }
}

fn text_bytes(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        Value::Array(values) => values.iter().map(text_bytes).sum(),
        Value::Object(fields) => fields.iter().map(|(name, v)| name.len() + text_bytes(v)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

/// Why text could not be made. All but [`TextError::Tokenizer`] is about the client's request.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TextError {
    /// The tokenizer refused.
    #[error("tokenizer: {0}")]
    Tokenizer(String),
    /// A text without a place where the tokenizer could be stopped and go on.
    #[error(
        "prompt: {text_bytes} bytes of text have no place where they could be tokenized in parts; \
         at most {max_bytes} such bytes in a row are accepted. Shorten the text, or break it into \
         words or lines."
    )]
    Uncuttable {
        /// What is left of the text, bytes.
        text_bytes: usize,
        /// Bytes that are tokenized at once.
        max_bytes: usize,
    },
    /// The template does not compile, failed, or refused with this message (`raise_exception`).
    #[error("{0}")]
    Template(String),
    /// There is nothing to render with.
    #[error(
        "the model's tokenizer has no chat template: pass one as `chat_template`, or use \
         /v1/completions with a plain prompt"
    )]
    NoChatTemplate,
    /// `chat_template` is absent and none of the model's named templates is the default.
    #[error("the model has several chat templates and no default: name one of {available:?}")]
    NoDefaultTemplate {
        /// The names there are.
        available: Vec<String>,
    },
    /// `continue_final_message` cannot be honoured.
    #[error("continue_final_message: {0}")]
    ContinueFinalMessage(String),
    /// A message that no template could take.
    #[error("messages[{index}]: {reason}")]
    InvalidMessage {
        /// Its place in `messages`.
        index: usize,
        /// What is wrong with it and what would be accepted.
        reason: String,
    },
}
