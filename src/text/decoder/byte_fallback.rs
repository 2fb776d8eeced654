//! Sentencepiece models with byte fallback: `▁Hello`, and `<0xE2>` for bytes that are not in the
//! vocabulary.
//!
//! The library turns a run of byte tokens into text as a whole. Valid UTF-8 becomes characters,
//! anything else becomes one U+FFFD a byte. Here tokens come one at a time, and a character is
//! shown as soon as it is complete. A run that proves invalid later keeps the characters already
//! shown, and has one U+FFFD for each byte after them.

use playhouse_actors::ports::{IncrementalDecoder, TextError};
use tokenizers::Decoder;
use tokenizers::decoders::DecoderWrapper;

use super::utf8::is_unfinished;
use super::{Pieces, REPLACEMENT};

/// The steps of this decoder: replacements in each token, bytes, then the strip at the front of the
/// whole text.
#[derive(Clone)]
pub(in crate::text) struct Stages {
    replacements: Vec<DecoderWrapper>,
    /// A character to remove from the start of the text, and how often at most.
    strip: Option<(char, usize)>,
}

impl Stages {
    /// Recognises `Replace* ByteFallback [Fuse [Strip]]`.
    pub(super) fn of(steps: &[DecoderWrapper]) -> Option<Self> {
        use DecoderWrapper::{ByteFallback, Fuse, Replace, Strip};
        let replace_count = steps.iter().take_while(|step| matches!(step, Replace(_))).count();
        let (replacements, rest) = steps.split_at(replace_count);
        let strip = match rest {
            [ByteFallback(_)] | [ByteFallback(_), Fuse(_)] => None,
            [ByteFallback(_), Fuse(_), Strip(strip)] if strip.stop == 0 => {
                Some((strip.content, strip.start))
            }
            _ => return None,
        };
        Some(Self { replacements: replacements.to_vec(), strip })
    }

    /// Replaces within a token: `▁Hello` → ` Hello`.
    pub(super) fn replace(&self, piece: String) -> String {
        self.replacements.iter().fold(piece, |piece, step| {
            let replaced = step.decode_chain(vec![piece.clone()]);
            replaced.map_or(piece, |pieces| pieces.concat())
        })
    }
}

/// Returns the byte of a token: `<0xE2>` → 0xE2.
pub(super) fn byte(piece: &str) -> Option<u8> {
    let digits = piece.strip_prefix("<0x")?.strip_suffix('>')?;
    if digits.len() == 2 { u8::from_str_radix(digits, 16).ok() } else { None }
}

/// Decodes such tokens one at a time.
pub(super) struct ByteFallbackDecoder {
    pieces: Pieces,
    stages: Stages,
    /// How often the stripped character may still be removed; 0 once the text has begun.
    strip_left: usize,
    /// Bytes of an unfinished character.
    pending: Vec<u8>,
    /// Whether the current run of byte tokens is not UTF-8.
    broken_run: bool,
}

impl ByteFallbackDecoder {
    pub(super) fn new(pieces: Pieces, stages: Stages, prompt: &[u32]) -> Self {
        let strip_left = stages.strip.map_or(0, |(_, count)| count);
        let mut decoder =
            Self { pieces, stages, strip_left, pending: Vec::new(), broken_run: false };
        // The start of the prompt decides the strip. Its last run of bytes decides the other
        // fields.
        let mut rest = prompt;
        while let [token, after @ ..] = rest
            && decoder.strip_left > 0
        {
            decoder.push_visible(*token);
            rest = after;
        }
        let is_text = |&token: &u32| {
            decoder.pieces.visible(token).is_some_and(|piece| byte(&piece).is_none())
        };
        let last_text = rest.iter().rposition(is_text).unwrap_or(0);
        for &token in &rest[last_text..] {
            decoder.push_visible(token);
        }
        decoder
    }

    fn push_visible(&mut self, token: u32) -> String {
        let mut text = String::new();
        if let Some(piece) = self.pieces.visible(token) {
            let piece = self.stages.replace(piece);
            match byte(&piece) {
                Some(byte) => self.push_byte(byte, &mut text),
                None => {
                    self.end_run(&mut text);
                    text.push_str(&piece);
                }
            }
        }
        self.strip_front(text)
    }

    fn push_byte(&mut self, byte: u8, text: &mut String) {
        self.pending.push(byte);
        if !self.broken_run {
            if let Ok(complete) = std::str::from_utf8(&self.pending) {
                text.push_str(complete);
                self.pending.clear();
                return;
            }
            self.broken_run = !is_unfinished(&self.pending);
        }
        if self.broken_run {
            self.replace_pending(text);
        }
    }

    fn end_run(&mut self, text: &mut String) {
        self.replace_pending(text);
        self.broken_run = false;
    }

    fn replace_pending(&mut self, text: &mut String) {
        text.extend(self.pending.drain(..).map(|_| REPLACEMENT));
    }

    fn strip_front(&mut self, text: String) -> String {
        let Some((content, _)) = self.stages.strip else { return text };
        let mut rest = text.as_str();
        while self.strip_left > 0 && !rest.is_empty() {
            match rest.strip_prefix(content) {
                Some(stripped) => (rest, self.strip_left) = (stripped, self.strip_left - 1),
                None => self.strip_left = 0,
            }
        }
        if rest.len() == text.len() { text } else { rest.to_owned() }
    }
}

impl IncrementalDecoder for ByteFallbackDecoder {
    fn push(&mut self, token: u32) -> Result<String, TextError> {
        Ok(self.push_visible(token))
    }

    fn flush(&mut self) -> String {
        let mut text = String::new();
        self.end_run(&mut text);
        self.strip_front(text)
    }
}
