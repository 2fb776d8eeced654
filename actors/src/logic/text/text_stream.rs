//! The growing text of one output. Stop strings are found across tokens, stop tokens are left out,
//! and no text is shown that a stop string could still remove. The text released after a number of
//! tokens depends only on those tokens, so a replay releases the same.

use super::stop::StopStringMatcher;
use crate::logic::{
    ledger::BatchId,
    request::{
        FinishReason, StopReason,
        ids::{Micros, RequestId},
        outputs::{Pooled, SampledToken, TokenLogprobs},
        sampling_params::SamplingParams,
    },
};

/// Text of one shard's requests, on its way to the clients.
#[derive(Debug, Clone, PartialEq)]
pub struct TextBatch {
    /// Id of the batch of tokens that it was made of.
    pub id: BatchId,
    /// News of each request.
    pub entries: Vec<TextEntry>,
}

/// News of one request.
#[derive(Debug, Clone, PartialEq)]
pub struct TextEntry {
    /// The request.
    pub request: RequestId,
    /// Index in the output of the first of `tokens`.
    pub position: usize,
    /// Tokens with the text that each of them released.
    pub tokens: Vec<TokenText>,
    /// The result of a pooling request.
    pub pooled: Option<Pooled>,
    /// Number of rows of prompt log-probabilities reported before.
    pub prompt_logprobs_start: usize,
    /// Log-probabilities of further prompt tokens.
    pub prompt_logprobs: Vec<TokenLogprobs>,
    /// Number of prompt tokens from the prefix cache, once known.
    pub num_cached_tokens: Option<usize>,
    /// Time from its arrival until it was first scheduled, in microseconds, once known.
    pub queue_time: Option<Micros>,
    /// The end of the output.
    pub end: Option<TextEnd>,
}

/// A token and the text that became final with it, which is often the text of earlier tokens.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenText {
    /// The token.
    pub token: SampledToken,
    /// The text; it may be empty.
    pub text: String,
}

/// The end of an output.
#[derive(Debug, Clone, PartialEq)]
pub struct TextEnd {
    /// Text that was held back until now.
    pub text: String,
    /// Reason of the end.
    pub reason: FinishReason,
}

/// The text of one output.
#[derive(Debug)]
pub struct TextStream {
    matcher: StopStringMatcher,
    stop: Vec<String>,
    shows_stop_token: bool,
    num_tokens: usize,
    /// Number of U+FFFDs at the end of the text so far. They are shown only once other text follows
    /// them.
    num_broken: usize,
    ended: bool,
}

impl TextStream {
    /// Returns the text of a request that has no output yet.
    #[must_use]
    pub fn new(params: &SamplingParams) -> Self {
        let include = params.include_stop_str_in_output;
        let min_tokens = params.min_tokens as usize;
        Self {
            matcher: StopStringMatcher::new(params.stop.clone(), include, min_tokens),
            stop: params.stop.clone(),
            shows_stop_token: include,
            num_tokens: 0,
            num_broken: 0,
            ended: false,
        }
    }

    /// Returns the number of tokens taken so far.
    #[must_use]
    pub fn num_tokens(&self) -> usize {
        self.num_tokens
    }

    /// Returns whether the output is complete.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Returns whether the text of a token is left out, because it is the token that stopped the
    /// output.
    #[must_use]
    pub fn hides(&self, is_last: bool, end: Option<&FinishReason>) -> bool {
        let by_token = matches!(end, Some(FinishReason::Stop(None | Some(StopReason::Token(_)))));
        is_last && by_token && !self.shows_stop_token
    }

    /// Takes the text that one more token completed. Returns the text that may be shown, and the
    /// end if a stop string is complete.
    pub fn push(&mut self, piece: &str) -> (String, Option<FinishReason>) {
        self.num_tokens += 1;
        let piece = self.without_broken_end(piece);
        let released = self.matcher.push(&piece, self.num_tokens);
        let stopped_by = released.stop_index.and_then(|index| self.stop.get(index));
        self.ended = stopped_by.is_some();
        let reason = stopped_by.map(|s| FinishReason::Stop(Some(StopReason::String(s.clone()))));
        (released.text, reason)
    }

    /// Ends the output without a stop string. `rest` is the text that the decoder still held.
    /// Returns the last text, without a character that never became whole.
    pub fn finish(&mut self, rest: &str) -> String {
        self.ended = true;
        let rest = self.without_broken_end(rest);
        // No stop string may complete here, because the end is already decided.
        let mut text = self.matcher.push(&rest, 0).text;
        text.push_str(&self.matcher.finish());
        text
    }

    /// Returns the text that was kept back before, then `piece` without the U+FFFDs at its end.
    /// Those are now kept back, as in vLLM. At the end of an output they are half a character.
    fn without_broken_end(&mut self, piece: &str) -> String {
        const BROKEN: &str = "\u{FFFD}";
        let mut text = BROKEN.repeat(self.num_broken);
        text.push_str(piece);
        let whole = text.trim_end_matches(BROKEN).len();
        self.num_broken = (text.len() - whole) / BROKEN.len();
        text.truncate(whole);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logic::request::EngineRequest;

    fn stream(stop: &[&str]) -> TextStream {
        let stop = stop.iter().map(|s| (*s).to_owned()).collect();
        let mut request = EngineRequest::for_test(0, [1]);
        request.sampling_mut().stop = stop;
        TextStream::new(request.sampling().unwrap())
    }

    #[test]
    fn without_stop_strings_text_flows_at_once() {
        let mut text = stream(&[]);
        assert_eq!(text.push("ab"), ("ab".to_owned(), None));
        assert_eq!(text.finish("c"), "c");
    }

    #[test]
    fn half_a_character_is_shown_once_something_follows_and_never_at_the_end() {
        let mut text = stream(&[]);
        assert_eq!(text.push("a\u{FFFD}").0, "a");
        assert_eq!(text.push("").0, "");
        assert_eq!(text.push("\u{FFFD}").0, "");
        assert_eq!(text.push("b").0, "\u{FFFD}\u{FFFD}b");
        assert_eq!(text.push("\u{FFFD}").0, "");
        assert_eq!(text.finish("\u{FFFD}"), "");
    }

    #[test]
    fn a_stop_string_across_tokens_ends_the_output_where_it_began() {
        let mut text = stream(&["END"]);
        assert_eq!(text.push("one E"), ("one".to_owned(), None));
        let (shown, end) = text.push("ND two");
        assert_eq!(shown, " ");
        assert_eq!(end, Some(FinishReason::Stop(Some(StopReason::String("END".to_owned())))));
        assert!(text.has_ended());
    }

    #[test]
    fn held_back_text_is_released_at_another_end() {
        let mut text = stream(&["END"]);
        text.push("EN");
        assert_eq!(text.finish(""), "EN");
    }

    #[test]
    fn only_the_token_that_stopped_is_hidden() {
        let text = stream(&[]);
        let stop = FinishReason::Stop(None);
        assert!(text.hides(true, Some(&stop)));
        assert!(!text.hides(false, Some(&stop)));
        assert!(!text.hides(true, Some(&FinishReason::Length)));
    }
}
