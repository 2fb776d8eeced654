//! The port to a tokenizer and its chat template: text becomes tokens, and tokens become text.

use std::{ops::Range, sync::Arc};

use serde_json::{Map, Value};
use thiserror::Error;

use super::MediaProcessor;
use crate::logic::{
    input::{encoder_text::EncoderText, fit::TruncationSide},
    request::ids::TokenId,
};

/// A model's tokenizer together with its chat template.
///
/// Every call may come from many threads at once. A token id that the tokenizer does not know
/// (models pad their embeddings) has no text: it decodes to nothing and is never an error.
pub trait TextCodec: Send + Sync + 'static {
    /// Returns the number of tokens, including added tokens.
    fn vocab_size(&self) -> usize;

    /// Returns the tokens of `text`. Special tokens spelled out in the text become those tokens.
    /// `add_special_tokens` adds the tokens that the model expects around a text, for example a BOS
    /// token.
    ///
    /// # Errors
    /// [`TextError::Tokenizer`] if the tokenizer rejects the text.
    fn encode(&self, text: &str, add_special_tokens: bool) -> Result<Vec<TokenId>, TextError>;

    /// Returns the tokens of two texts, joined as the model expects. With `most_tokens`, the longer
    /// text loses tokens at its end until no more than that are left, special tokens included.
    ///
    /// # Errors
    /// [`TextError::Tokenizer`] if the tokenizer rejects the texts, or cannot join them.
    fn encode_pair(
        &self,
        _first: &str,
        _second: &str,
        _add_special_tokens: bool,
        _most_tokens: Option<usize>,
    ) -> Result<TokenizedPair, TextError> {
        Err(TextError::Tokenizer("it does not join two texts".to_owned()))
    }

    /// Returns the tokens of texts that follow each other, read as one text. A token of two texts
    /// is the later one's. Special tokens before the first text are the first one's, and those
    /// behind the last text are the last one's.
    ///
    /// # Errors
    /// [`TextError::Tokenizer`] if the tokenizer rejects the text.
    fn encode_chunks(
        &self,
        texts: &[String],
        add_special_tokens: bool,
    ) -> Result<TokenizedChunks, TextError> {
        let around = if add_special_tokens { self.surround() } else { Default::default() };
        let mut chunks =
            TokenizedChunks { tokens: around.0, ends: Vec::with_capacity(texts.len()) };
        for text in texts {
            chunks.tokens.extend(self.encode(text, false)?);
            chunks.ends.push(chunks.tokens.len());
        }
        chunks.tokens.extend(around.1);
        chunks.ends.last_mut().into_iter().for_each(|end| *end = chunks.tokens.len());
        Ok(chunks)
    }

    /// Returns the beginning of a text that has at most so many tokens, without special tokens. A
    /// codec may return it in the case in which it is tokenized.
    ///
    /// # Errors
    /// [`TextError::Tokenizer`] if the tokenizer rejects the text.
    fn first_tokens(&self, text: &str, most_tokens: usize) -> Result<String, TextError> {
        let tokens = self.encode(text, false)?;
        match tokens.get(..most_tokens) {
            Some(first) if first.len() < tokens.len() => self.decode(first, false),
            _ => Ok(text.to_owned()),
        }
    }

    /// Returns the part of `text` to tokenize next. The part lies within `rest`, the range that is
    /// left. It lies at the side that is kept when a prompt is truncated. The tokens of all parts,
    /// in the text's order, are the tokens of the whole text, without the special tokens around it.
    /// A tokenizer that cannot cut texts returns the whole of `rest`.
    ///
    /// # Errors
    /// [`TextError::Uncuttable`] if the part would be too long to be tokenized at once.
    fn next_piece(
        &self,
        _text: &str,
        rest: Range<usize>,
        _dropped: TruncationSide,
    ) -> Result<Range<usize>, TextError> {
        Ok(rest)
    }

    /// Returns the tokens of a part that [`TextCodec::next_piece`] found.
    ///
    /// # Errors
    /// [`TextError::Tokenizer`] if the tokenizer rejects the text.
    fn encode_piece(&self, text: &str, piece: Range<usize>) -> Result<Vec<TokenId>, TextError> {
        self.encode(text.get(piece).unwrap_or_default(), false)
    }

    /// Returns the tokens that `add_special_tokens` adds before and after a text of several parts.
    fn surround(&self) -> (Vec<TokenId>, Vec<TokenId>) {
        (Vec::new(), Vec::new())
    }

    /// Returns the largest number of text bytes that one token stands for, if it is known. A text
    /// longer than a full context of the longest tokens is rejected without being tokenized.
    fn max_token_bytes(&self) -> Option<usize> {
        None
    }

    /// Returns the text of a whole sequence. Bytes that are not UTF-8 become U+FFFD.
    ///
    /// # Errors
    /// [`TextError::Tokenizer`] if the tokenizer's decoder fails.
    fn decode(&self, tokens: &[TokenId], skip_special_tokens: bool) -> Result<String, TextError>;

    /// Returns the text of one token alone, as log-probability entries show it. Half a character
    /// becomes U+FFFD, and special tokens are spelled out. A sentencepiece token loses its leading
    /// space.
    fn token_text(&self, token: TokenId) -> String;

    /// Returns the exact bytes that one token stands for inside a text.
    fn token_bytes(&self, token: TokenId) -> Vec<u8>;

    /// Returns the vocabulary's own spelling of a token (`Ġworld`), if the token exists.
    fn token_piece(&self, token: TokenId) -> Option<String>;

    /// Returns the text and the id of the end-of-sequence token.
    fn eos_token(&self) -> Option<(String, TokenId)>;

    /// Returns the text and the id of the begin-of-sequence token.
    fn bos_token(&self) -> Option<(String, TokenId)>;

    /// Returns the id of the padding token, if there is one.
    fn pad_token(&self) -> Option<TokenId> {
        None
    }

    /// Returns whether `skip_special_tokens` leaves this token out.
    fn is_special(&self, token: TokenId) -> bool;

    /// Returns the prompt text of a conversation.
    ///
    /// # Errors
    /// Any [`TextError`] that concerns templates. The client may see the whole text.
    fn render_chat(&self, chat: &ChatPrompt) -> Result<String, TextError>;

    /// Returns the processor of the model's images and sounds, whose placeholders are in its
    /// prompts. By default the model takes none.
    fn media(&self) -> Option<&Arc<dyn MediaProcessor>> {
        None
    }

    /// Returns the facts about the model's encoder, if its prompts are the encoder's texts. By
    /// default they are the texts that the model continues.
    fn encoder_text(&self) -> Option<&Arc<EncoderText>> {
        None
    }

    /// Returns a decoder for the tokens that follow `prompt`.
    fn decoder(&self, prompt: &[TokenId], options: DecodeOptions) -> Box<dyn IncrementalDecoder>;
}

/// The tokens of two texts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenizedPair {
    /// All tokens.
    pub tokens: Vec<TokenId>,
    /// Position of the first token of type 1. `None`: all tokens have the type 0.
    pub second_text_at: Option<usize>,
}

/// The tokens of several texts that follow each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenizedChunks {
    /// All tokens.
    pub tokens: Vec<TokenId>,
    /// For each text, the position after its last token. It is that of the text before if the text
    /// has no token of its own.
    pub ends: Vec<usize>,
}

/// Options for turning generated tokens into text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeOptions {
    /// Whether to leave special tokens out of the text.
    pub skip_special_tokens: bool,
    /// Whether a tokenizer that puts spaces between tokens also puts them between added tokens.
    pub spaces_between_special_tokens: bool,
}

impl Default for DecodeOptions {
    fn default() -> Self {
        Self { skip_special_tokens: true, spaces_between_special_tokens: true }
    }
}

/// Turns tokens into text, one token at a time. It never returns half a character.
pub trait IncrementalDecoder: Send {
    /// Returns the text that this token completes. It is often empty.
    ///
    /// # Errors
    /// [`TextError::Tokenizer`] if the tokenizer's decoder fails.
    fn push(&mut self, token: TokenId) -> Result<String, TextError>;

    /// Returns, at the end of the sequence, the text that was held back. It is the text that
    /// decoding the whole sequence would show.
    fn flush(&mut self) -> String;
}

/// A conversation for a chat template to render.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChatPrompt {
    /// OpenAI-style messages: objects with a `role`, and `content` as text or a list of parts.
    pub messages: Vec<Value>,
    /// JSON schemas of the tools that the model may call.
    pub tools: Option<Vec<Value>>,
    /// Documents for retrieval-augmented templates.
    pub documents: Option<Vec<Value>>,
    /// Whether the text ends with the header of an assistant message.
    pub add_generation_prompt: bool,
    /// Whether the last message stays open, so that the model continues it.
    pub continue_final_message: bool,
    /// A template that replaces the model's own, or the name of one of the model's templates.
    pub chat_template: Option<String>,
    /// Further variables for the template.
    pub chat_template_kwargs: Map<String, Value>,
    /// Whether no line breaks follow the placeholders before a message's text. vLLM writes the
    /// sides of pairs like that.
    pub joins_placeholders: bool,
}

impl ChatPrompt {
    /// Returns the number of bytes of all text that a template may write.
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

/// The reason why text could not be produced. All cases except [`TextError::Tokenizer`] concern the
/// client's request.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TextError {
    /// The tokenizer rejected the text.
    #[error("tokenizer: {0}")]
    Tokenizer(String),
    /// The text has no place where the tokenizer could stop and continue.
    #[error(
        "prompt: {text_bytes} bytes of text have no place where they could be tokenized in parts; \
         at most {max_bytes} such bytes in a row are accepted. Shorten the text, or break it into \
         words or lines."
    )]
    Uncuttable {
        /// Number of bytes that are left of the text.
        text_bytes: usize,
        /// Largest number of bytes that are tokenized at once.
        max_bytes: usize,
    },
    /// The template does not compile, failed, or rejected the conversation with this message
    /// (`raise_exception`).
    #[error("{0}")]
    Template(String),
    /// The model has no chat template, and the request brings none.
    #[error(
        "the model's tokenizer has no chat template: pass one as `chat_template`, or use \
         /v1/completions with a plain prompt"
    )]
    NoChatTemplate,
    /// `chat_template` is absent and none of the model's named templates is the default.
    #[error("the model has several chat templates and no default: name one of {available:?}")]
    NoDefaultTemplate {
        /// The names of the model's templates.
        available: Vec<String>,
    },
    /// `continue_final_message` cannot be honoured.
    #[error("continue_final_message: {0}")]
    ContinueFinalMessage(String),
    /// No template could accept this message.
    #[error("messages[{index}]: {reason}")]
    InvalidMessage {
        /// The index of the message in `messages`.
        index: usize,
        /// The fault, and the form that would be accepted.
        reason: String,
    },
}
