//! A tokenizer for tests: every byte is a token.

use crate::api::{ChatPrompt, DecodeOptions, IncrementalDecoder, TextCodec, TextError};

pub(crate) struct ByteCodec;

impl TextCodec for ByteCodec {
    fn vocab_size(&self) -> usize {
        256
    }

    fn encode(&self, text: &str, _add_special_tokens: bool) -> Result<Vec<u32>, TextError> {
        Ok(text.bytes().map(u32::from).collect())
    }

    fn decode(&self, tokens: &[u32], _skip_special_tokens: bool) -> Result<String, TextError> {
        let bytes: Vec<u8> = tokens.iter().map(|&token| token as u8).collect();
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn token_text(&self, token: u32) -> String {
        String::from_utf8_lossy(&[token as u8]).into_owned()
    }

    fn token_bytes(&self, token: u32) -> Vec<u8> {
        vec![token as u8]
    }

    fn token_piece(&self, token: u32) -> Option<String> {
        Some(self.token_text(token))
    }

    fn eos_token(&self) -> Option<(String, u32)> {
        None
    }

    fn bos_token(&self) -> Option<(String, u32)> {
        None
    }

    fn is_special(&self, _token: u32) -> bool {
        false
    }

    fn render_chat(&self, _chat: &ChatPrompt) -> Result<String, TextError> {
        Err(TextError::NoChatTemplate)
    }

    fn decoder(&self, _prompt: &[u32], _options: DecodeOptions) -> Box<dyn IncrementalDecoder> {
        Box::new(Nothing)
    }
}

struct Nothing;

impl IncrementalDecoder for Nothing {
    fn push(&mut self, _token: u32) -> Result<String, TextError> {
        Ok(String::new())
    }

    fn flush(&mut self) -> String {
        String::new()
    }
}
