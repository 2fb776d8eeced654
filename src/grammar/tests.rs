//! Grammars over a vocabulary of bytes, and a few longer tokens that cross their lexemes.

mod ascii;
mod formats;
mod limits;
mod walk;

use std::sync::Arc;

use playhouse_actors::{
    logic::request::structured_output::{OutputFormat, StructuredOutput},
    ports::{ChatPrompt, DecodeOptions, GrammarError, IncrementalDecoder, TextCodec, TextError},
};

use super::{GrammarStore, Matcher};

/// Tokens that end an output. Some models have the second as well.
pub(crate) const EOS: u32 = 256;
const END_OF_TURN: u32 = 257;
/// A special token.
const TOOL: u32 = 258;
/// Tokens of several bytes, from 259 on.
const WORDS: [&str; 12] =
    ["\":", "\": ", "{\"", "\",", "\"}", "  ", "\n  ", "yes", "true", "é", "</", "12"];
/// Padding of the embedding.
pub(crate) const VOCAB_SIZE: u32 = 300;

struct Bytes;

impl TextCodec for Bytes {
    fn vocab_size(&self) -> usize {
        259 + WORDS.len()
    }

    fn token_bytes(&self, token: u32) -> Vec<u8> {
        match token {
            0..256 => vec![token as u8],
            _ => self.token_piece(token).unwrap_or_default().into_bytes(),
        }
    }

    fn token_piece(&self, token: u32) -> Option<String> {
        Some(match token {
            0..256 => char::from_u32(token)?.to_string(),
            EOS => "</s>".to_owned(),
            END_OF_TURN => "<|end|>".to_owned(),
            TOOL => "<tool>".to_owned(),
            _ => (*WORDS.get(token as usize - 259)?).to_owned(),
        })
    }

    fn is_special(&self, token: u32) -> bool {
        // The second end is not listed: a token that ends an output is no text, whatever the
        // tokenizer says.
        matches!(token, EOS | TOOL)
    }

    fn encode(&self, text: &str, _add_special_tokens: bool) -> Result<Vec<u32>, TextError> {
        Ok(text.bytes().map(u32::from).collect())
    }

    fn decode(&self, tokens: &[u32], _skip_special_tokens: bool) -> Result<String, TextError> {
        Ok(text_of(tokens))
    }

    fn token_text(&self, token: u32) -> String {
        text_of(&[token])
    }

    fn eos_token(&self) -> Option<(String, u32)> {
        None
    }

    fn bos_token(&self) -> Option<(String, u32)> {
        None
    }

    fn render_chat(&self, _chat: &ChatPrompt) -> Result<String, TextError> {
        Err(TextError::NoChatTemplate)
    }

    fn decoder(&self, _prompt: &[u32], _options: DecodeOptions) -> Box<dyn IncrementalDecoder> {
        panic!("nothing is decoded here")
    }
}

fn text_of(tokens: &[u32]) -> String {
    let bytes: Vec<u8> = tokens.iter().flat_map(|&token| Bytes.token_bytes(token)).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

pub(crate) fn store() -> GrammarStore {
    GrammarStore::new(Arc::new(Bytes), VOCAB_SIZE, vec![EOS, END_OF_TURN])
}

fn is_end(token: u32) -> bool {
    matches!(token, EOS | END_OF_TURN)
}

/// Returns whether `text` is an output of this grammar: every byte is allowed, and then the end.
pub(crate) fn accepts(matcher: &mut Matcher, text: &str) -> bool {
    accepts_tokens(matcher, &Vec::from_iter(text.bytes().map(u32::from)))
}

fn accepts_tokens(matcher: &mut Matcher, tokens: &[u32]) -> bool {
    for &token in tokens {
        let mask = matcher.mask().expect("a mask");
        if !mask.allows(token) {
            return false;
        }
        matcher.consume(&[token]).expect("a token that may come");
    }
    let mask = matcher.mask().expect("a mask");
    assert!(mask.allows(EOS) || !mask.allows(END_OF_TURN), "the first end at least");
    mask.allows(EOS)
}

/// Checks one format with outputs that it allows and outputs that it does not.
fn check(output: impl Into<StructuredOutput>, good: &[&str], bad: &[&str]) {
    let (store, output) = (store(), output.into());
    for (texts, expected) in [(good, true), (bad, false)] {
        for text in texts {
            let mut matcher = store.matcher(&output).unwrap_or_else(|e| panic!("{output:?}: {e}"));
            assert_eq!(accepts(&mut matcher, text), expected, "{:?}: {text:?}", output.format);
        }
    }
}

fn refusal(output: impl Into<StructuredOutput>) -> GrammarError {
    let output = output.into();
    match store().matcher(&output) {
        Ok(_) => panic!("{output:?} was taken"),
        Err(error) => error,
    }
}

fn schema(schema: serde_json::Value) -> OutputFormat {
    OutputFormat::JsonSchema(schema.to_string())
}
