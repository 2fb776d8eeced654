//! Text of one output as it grows: stop strings found across tokens, stop tokens left out, nothing
//! shown that could still be taken back. What is released after a number of tokens depends on
//! those tokens alone, so a replay releases the same.

use super::stop::StopStringMatcher;
use crate::logic::{
    ledger::BatchId,
    request::{
        EngineRequest, FinishReason, StopReason,
        ids::{Micros, RequestId},
        outputs::{SampledToken, TokenLogprobs},
    },
};

/// Text of one shard's requests, on its way to the clients.
#[derive(Debug, Clone, PartialEq)]
pub struct TextBatch {
    /// The batch of tokens that it was made of.
    pub id: BatchId,
    /// By request.
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
    /// Rows of prompt log-probabilities told before.
    pub prompt_logprobs_start: usize,
    /// Log-probabilities of further prompt tokens.
    pub prompt_logprobs: Vec<TokenLogprobs>,
    /// Prompt tokens that came from the prefix cache, once known.
    pub num_cached_tokens: Option<usize>,
    /// Microseconds from its arrival until it was first scheduled, once known.
    pub queue_time: Option<Micros>,
    /// The end of the output.
    pub end: Option<TextEnd>,
}

/// A token and the text that became final with it, often that of earlier ones.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenText {
    /// The token.
    pub token: SampledToken,
    /// Possibly empty.
    pub text: String,
}

/// How an output ends.
#[derive(Debug, Clone, PartialEq)]
pub struct TextEnd {
    /// Text that was held back until now.
    pub text: String,
    /// Why.
    pub reason: FinishReason,
}

/// The text of one output.
#[derive(Debug)]
pub struct TextStream {
    matcher: StopStringMatcher,
    stop: Vec<String>,
    shows_stop_token: bool,
    num_tokens: usize,
    /// U+FFFDs at the end of the text so far: shown only once something follows them.
    num_broken: usize,
    ended: bool,
}

impl TextStream {
    /// The text of a request that has no output yet.
    #[must_use]
    pub fn new(request: &EngineRequest) -> Self {
        let params = request.sampling();
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

    /// Tokens taken so far.
    #[must_use]
    pub fn num_tokens(&self) -> usize {
        self.num_tokens
    }

    /// Whether the output is complete.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether the text of a token is left out: it is the one that stopped the output.
    #[must_use]
    pub fn hides(&self, is_last: bool, end: Option<&FinishReason>) -> bool {
        let by_token = matches!(end, Some(FinishReason::Stop(None | Some(StopReason::Token(_)))));
        is_last && by_token && !self.shows_stop_token
    }

    /// Takes the text that one more token completed. Gives what may be shown, and the end if a
    /// stop string is complete.
    pub fn push(&mut self, piece: &str) -> (String, Option<FinishReason>) {
        self.num_tokens += 1;
        let piece = self.without_broken_end(piece);
        let released = self.matcher.push(&piece, self.num_tokens);
        let stopped_by = released.stop_index.and_then(|index| self.stop.get(index));
        self.ended = stopped_by.is_some();
        let reason = stopped_by.map(|s| FinishReason::Stop(Some(StopReason::String(s.clone()))));
        (released.text, reason)
    }

    /// The output ended otherwise; `rest` is what the decoder still held. Gives the last text, which
    /// leaves out a character that never became whole.
    pub fn finish(&mut self, rest: &str) -> String {
        self.ended = true;
        let rest = self.without_broken_end(rest);
        // No stop string may complete here: the end is decided already.
        let mut text = self.matcher.push(&rest, 0).text;
        text.push_str(&self.matcher.finish());
        text
    }

    /// What was kept back before, then `piece` without the U+FFFDs at its end: those are kept back
    /// in turn, as vLLM does. At the end of an output they are half a character.
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

    fn stream(stop: &[&str]) -> TextStream {
        let stop = stop.iter().map(|s| (*s).to_owned()).collect();
        let mut request = EngineRequest::for_test(0, [1]);
        request.sampling_mut().stop = stop;
        TextStream::new(&request)
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
    fn what_was_held_back_comes_with_another_end() {
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
