//! Prompts of encoder-decoder models for text. The encoder takes the client's text, and the decoder
//! begins with tokens that are the same for all requests in one language.

use super::{
    fit::{OutputTokens, PromptLimits},
    languages::Languages,
};
use crate::{error::RequestError, logic::request::ids::TokenId};

/// The facts about a model whose prompts are the texts of its encoder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncoderText {
    /// Most tokens of a text.
    pub max_tokens: usize,
    /// Token ids of texts are below this.
    pub vocab_size: u32,
    /// The tokens with which the decoder begins, at least one.
    pub decoder_prompt: Vec<TokenId>,
    /// The languages that a request may name, if the model has some.
    pub languages: Option<Languages>,
}

impl EncoderText {
    /// The output tokens beside a text of the encoder: those of the decoder have their own context.
    pub const OUTPUT: OutputTokens = OutputTokens { wanted: Some(0), default: None };

    /// Returns the limits of a text.
    #[must_use]
    pub fn limits(&self) -> PromptLimits {
        let Self { max_tokens: max_model_len, vocab_size, .. } = *self;
        PromptLimits { vocab_size, max_model_len, min_output_tokens: 0 }
    }
}

/// Returns the error of a text, with the encoder's limit where it speaks of a context.
#[must_use]
pub fn of_encoder(error: RequestError) -> RequestError {
    match error {
        RequestError::PromptTooLong { max_model_len, min_prompt_tokens } => {
            let (max_tokens, min_text_tokens) = (max_model_len, min_prompt_tokens);
            RequestError::EncoderTextTooLong { max_tokens, min_text_tokens }
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logic::input::fit::{TruncationSide, fit_prompt};

    fn text() -> EncoderText {
        let decoder_prompt = vec![2];
        EncoderText { max_tokens: 8, vocab_size: 10, decoder_prompt, languages: None }
    }

    fn fit(len: u32, truncate_to: Option<i64>) -> Result<usize, String> {
        let text = text();
        let (tokens, side) = ((0..len).collect(), TruncationSide::Right);
        let fitted = fit_prompt(tokens, EncoderText::OUTPUT, truncate_to, side, &text.limits());
        let fitted = fitted.map_err(of_encoder).map_err(|error| error.to_string());
        Ok(fitted?.prompt_token_ids.len())
    }

    #[test]
    fn a_text_may_fill_the_encoder_and_no_more() {
        assert_eq!(fit(8, None), Ok(8));
        let refused = fit(9, None).unwrap_err();
        assert!(
            refused.contains("at most 8 tokens") && refused.contains("at least 9"),
            "{refused}"
        );
        assert_eq!(fit(9, Some(-1)), Ok(8));
        assert_eq!(fit(9, Some(3)), Ok(3));
    }

    #[test]
    fn other_errors_stay() {
        assert!(fit(0, None).unwrap_err().contains("at least one token"));
        let unknown =
            fit_prompt(vec![10], EncoderText::OUTPUT, None, TruncationSide::Left, &text().limits());
        assert!(unknown.map_err(of_encoder).unwrap_err().to_string().contains("below"));
    }
}
