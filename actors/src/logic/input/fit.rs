//! Fits a prompt into the model's context: truncation, known tokens, room for the output.

use crate::{error::RequestError, logic::request::ids::TokenId};

/// The end of a too long prompt that is cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TruncationSide {
    /// Drops the beginning and keeps the last tokens.
    #[default]
    Left,
    /// Drops the end and keeps the first tokens.
    Right,
}

/// The limits of a prompt.
#[derive(Debug, Clone, Copy)]
pub struct PromptLimits {
    /// Token ids are below this.
    pub vocab_size: u32,
    /// Maximum number of prompt and output tokens.
    pub max_model_len: usize,
    /// Number of output tokens that every request needs room for: 0 if it pools.
    pub min_output_tokens: u32,
}

/// A prompt that fits, with the output tokens it may have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FittedPrompt {
    /// At least one token.
    pub prompt_token_ids: Vec<TokenId>,
    /// At least 1, or 0 for a request that pools.
    pub max_tokens: u32,
}

/// The length of a request's output.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OutputTokens {
    /// The client's wish, which is at most the whole context.
    pub wanted: Option<u32>,
    /// The largest number of tokens without a wish.
    pub default: Option<u32>,
}

impl OutputTokens {
    /// Returns the number of output tokens when the context leaves `room`. As in vLLM, it may be
    /// less than the wish.
    #[must_use]
    pub fn within(self, room: usize) -> usize {
        self.wanted.or(self.default).map_or(room, |most| room.min(most as usize))
    }
}

/// Returns how many tokens of a prompt stay; `None` means all. A `truncate_to` of -1 means as many
/// as leave room for an output token.
///
/// # Errors
/// [`RequestError::InvalidParameter`] for a bad truncation.
pub fn kept_tokens(
    truncate_to: Option<i64>,
    limits: &PromptLimits,
) -> Result<Option<usize>, RequestError> {
    let max_model_len = limits.max_model_len;
    let Some(truncate_to) = truncate_to else { return Ok(None) };
    let room = max_model_len.saturating_sub(limits.min_output_tokens as usize);
    match usize::try_from(truncate_to) {
        Ok(keep) if (1..=max_model_len).contains(&keep) => Ok(Some(keep)),
        Err(_) if truncate_to == -1 => Ok(Some(room)),
        _ => {
            let accepted = format!("-1 or in 1..={max_model_len} (the model's context)");
            Err(RequestError::invalid("truncate_prompt_tokens", truncate_to, accepted))
        }
    }
}

/// Truncates and checks a prompt, as [`kept_tokens`] says.
///
/// # Errors
/// [`RequestError::InvalidParameter`] for an empty prompt, an unknown token or a bad truncation.
/// [`RequestError::ContextLength`] when the prompt leaves no room for an output, or when the wish
/// for an output is longer than the context.
pub fn fit_prompt(
    mut tokens: Vec<TokenId>,
    output: OutputTokens,
    truncate_to: Option<i64>,
    side: TruncationSide,
    limits: &PromptLimits,
) -> Result<FittedPrompt, RequestError> {
    let max_model_len = limits.max_model_len;
    if let Some(keep) = kept_tokens(truncate_to, limits)? {
        truncate(&mut tokens, keep, side);
    }
    if tokens.is_empty() {
        return Err(RequestError::invalid("prompt", "no tokens", "at least one token"));
    }
    if let Some(&token) = tokens.iter().find(|&&token| token >= limits.vocab_size) {
        let accepted = format!("token ids below the vocabulary's {}", limits.vocab_size);
        return Err(RequestError::invalid("prompt", token, accepted));
    }
    let prompt_tokens = tokens.len();
    let room = max_model_len.saturating_sub(prompt_tokens);
    let wanted = output.wanted.unwrap_or(0) as usize;
    let least = limits.min_output_tokens as usize;
    if least == 0 && prompt_tokens > max_model_len {
        return Err(RequestError::PromptTooLong {
            max_model_len,
            min_prompt_tokens: prompt_tokens,
        });
    }
    if room < least || wanted > max_model_len {
        let max_tokens = wanted.max(1);
        return Err(RequestError::ContextLength { max_model_len, prompt_tokens, max_tokens });
    }
    let max_tokens = u32::try_from(output.within(room)).unwrap_or(u32::MAX);
    Ok(FittedPrompt { prompt_token_ids: tokens, max_tokens })
}

/// Rejects a text that is too long whatever its tokens are, because tokenizing megabytes takes
/// seconds.
///
/// # Errors
/// [`RequestError::TextTooLong`].
pub fn check_length(
    text: &str,
    max_token_bytes: usize,
    max_model_len: usize,
) -> Result<(), RequestError> {
    check_text_bytes(text.len(), max_token_bytes, max_model_len)
}

/// Does the same as [`check_length`] for a text of so many bytes.
///
/// # Errors
/// [`RequestError::TextTooLong`].
pub fn check_text_bytes(
    text_bytes: usize,
    max_token_bytes: usize,
    max_model_len: usize,
) -> Result<(), RequestError> {
    let max_text_bytes = max_model_len.saturating_mul(max_token_bytes);
    if text_bytes <= max_text_bytes {
        return Ok(());
    }
    Err(RequestError::TextTooLong { max_model_len, text_bytes, max_text_bytes })
}

fn truncate(tokens: &mut Vec<TokenId>, keep: usize, side: TruncationSide) {
    match side {
        TruncationSide::Left => drop(tokens.drain(..tokens.len().saturating_sub(keep))),
        TruncationSide::Right => tokens.truncate(keep),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: PromptLimits =
        PromptLimits { vocab_size: 100, max_model_len: 10, min_output_tokens: 1 };

    #[test]
    fn a_text_is_rejected_untokenized_only_if_no_tokens_could_make_it_fit() {
        assert!(check_length(&"x".repeat(70), 7, 10).is_ok());
        let refused = check_length(&"x".repeat(71), 7, 10).unwrap_err();
        let expected =
            RequestError::TextTooLong { max_model_len: 10, text_bytes: 71, max_text_bytes: 70 };
        assert_eq!(refused, expected);
    }

    fn wanted(wanted: Option<u32>) -> OutputTokens {
        OutputTokens { wanted, default: None }
    }

    fn fit(len: u32, max: Option<u32>, cut: Option<i64>) -> Result<(Vec<u32>, u32), String> {
        fit_prompt((0..len).collect(), wanted(max), cut, TruncationSide::Left, &LIMITS)
            .map(|fitted| (fitted.prompt_token_ids, fitted.max_tokens))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn without_a_wish_the_output_gets_what_the_context_leaves() {
        assert_eq!(fit(4, None, None), Ok((vec![0, 1, 2, 3], 6)));
    }

    /// A prompt cannot be too long for a default.
    #[test]
    fn a_default_only_caps_what_the_context_leaves() {
        for (len, expected) in [(4, 5), (7, 3)] {
            let output = OutputTokens { wanted: None, default: Some(5) };
            let tokens = (0..len).collect();
            let fitted = fit_prompt(tokens, output, None, TruncationSide::Left, &LIMITS).unwrap();
            assert_eq!(fitted.max_tokens, expected);
        }
    }

    /// As vLLM's `get_max_tokens` and `TokenizeParams` have it.
    #[test]
    fn an_output_ends_with_the_context() {
        assert_eq!(fit(4, Some(6), None).map(|(_, max_tokens)| max_tokens), Ok(6));
        assert_eq!(fit(4, Some(7), None).map(|(_, max_tokens)| max_tokens), Ok(6));
        assert_eq!(fit(9, Some(10), None).map(|(_, max_tokens)| max_tokens), Ok(1));
        assert!(fit(4, Some(11), None).is_err_and(|error| error.contains("10 tokens")));
        assert!(fit(10, None, None).is_err(), "no room for a single token");
        assert!(fit(0, None, None).is_err());
    }

    #[test]
    fn truncation_keeps_the_asked_for_end() {
        assert_eq!(fit(20, Some(2), Some(3)), Ok((vec![17, 18, 19], 2)));
        let fitted = fit(20, Some(2), Some(-1));
        assert_eq!(fitted.map(|(tokens, max_tokens)| (tokens.len(), max_tokens)), Ok((9, 1)));
        let right =
            fit_prompt((0..9).collect(), wanted(Some(1)), Some(4), TruncationSide::Right, &LIMITS);
        assert_eq!(right.map(|fitted| fitted.prompt_token_ids), Ok(vec![0, 1, 2, 3]));
        assert!(fit(20, Some(2), Some(0)).is_err());
        assert!(fit(20, Some(2), Some(-2)).is_err());
        assert!(fit(20, Some(2), Some(11)).is_err());
    }

    #[test]
    fn a_prompt_that_is_pooled_may_fill_the_context() {
        let limits = PromptLimits { min_output_tokens: 0, ..LIMITS };
        let fit = |len: u32, cut| {
            let tokens = (0..len).collect();
            fit_prompt(tokens, wanted(Some(0)), cut, TruncationSide::Right, &limits)
                .map(|fitted| (fitted.prompt_token_ids.len(), fitted.max_tokens))
        };
        assert_eq!(fit(10, None), Ok((10, 0)));
        assert_eq!(fit(20, Some(-1)), Ok((10, 0)));
        let refused = RequestError::PromptTooLong { max_model_len: 10, min_prompt_tokens: 11 };
        assert_eq!(fit(11, None), Err(refused));
    }

    #[test]
    fn unknown_tokens_are_named() {
        let error = fit_prompt(vec![5, 999], wanted(Some(1)), None, TruncationSide::Left, &LIMITS);
        assert!(error.is_err_and(|error| error.to_string().contains("999")));
    }
}
