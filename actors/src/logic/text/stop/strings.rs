//! Stop strings: they are found as text arrives, and no part of them is shown.

use crate::logic::planted::{Bug, planted};

/// A stop string that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopMatch {
    /// Its index in the list of stop strings.
    pub stop_index: usize,
    /// Byte offset at which to cut the text. `None`: nothing follows the kept text.
    pub cut: Option<usize>,
}

/// Returns the stop string that is complete first among the last `new_char_count` characters of
/// `text`.
///
/// The earliest completion wins, then the order of the list. An occurrence that ends in the older
/// part of the text is ignored. With `include_stop_str_in_output` the text is kept up to the end of
/// the stop string, otherwise up to its start. Empty stop strings never match.
///
/// `new_char_count` counts Unicode characters, as vLLM's does; `cut` counts bytes.
#[must_use]
pub fn check_stop_strings(
    text: &str,
    new_char_count: usize,
    stops: &[String],
    include_stop_str_in_output: bool,
) -> Option<StopMatch> {
    if new_char_count == 0 {
        return None;
    }
    let new_start = byte_offset_from_end(text, new_char_count);
    let (end, stop_index) = stops
        .iter()
        .enumerate()
        .filter_map(|(index, stop)| Some((first_end_after(text, stop, new_start)?, index)))
        .min()?;
    let cut = if include_stop_str_in_output { end } else { end - stops[stop_index].len() };
    Some(StopMatch { stop_index, cut: (cut < text.len()).then_some(cut) })
}

/// Returns the end of the first occurrence of `stop` that ends after `new_start`, both in bytes.
fn first_end_after(text: &str, stop: &str, new_start: usize) -> Option<usize> {
    if stop.is_empty() {
        return None;
    }
    // The last character of an occurrence is new, but all others may be old.
    let back = stop.chars().count() - 1;
    let from = byte_offset_from_end(&text[..new_start], back);
    text[from..].find(stop).map(|found| from + found + stop.len())
}

/// Returns the byte offset of the last `chars` characters of `text`, or 0 when it has fewer.
fn byte_offset_from_end(text: &str, chars: usize) -> usize {
    if chars == 0 {
        return text.len();
    }
    text.char_indices().rev().nth(chars - 1).map_or(0, |(offset, _)| offset)
}

/// The output of a [`StopStringMatcher`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Released {
    /// Text that no later stop string can remove.
    pub text: String,
    /// Index in the list of the stop string that was found. Nothing is released after it.
    pub stop_index: Option<usize>,
}

/// Releases text until a stop string is complete.
///
/// It holds back one character less than the longest stop string has, so that no part of a stop
/// string is ever released. It holds back nothing when stop strings are kept in the output. The
/// released text depends on the text and on where the first `min_tokens` tokens end. It does not
/// depend on how the text is cut into pieces.
#[derive(Clone, Debug)]
pub struct StopStringMatcher {
    stops: Vec<String>,
    include_stop_str_in_output: bool,
    min_tokens: usize,
    /// One character less than the longest stop string.
    overlap_chars: usize,
    /// The end of the text so far, at most `overlap_chars` characters. The next match may start in
    /// it. Unless stop strings are kept, it is not yet released.
    tail: String,
    stopped: bool,
}

impl StopStringMatcher {
    /// Returns a matcher for one output. The text of the first `min_tokens` output tokens completes
    /// no stop string.
    #[must_use]
    pub fn new(stops: Vec<String>, include_stop_str_in_output: bool, min_tokens: usize) -> Self {
        let longest = stops.iter().map(|stop| stop.chars().count()).max().unwrap_or(0);
        Self {
            stops,
            include_stop_str_in_output,
            min_tokens,
            overlap_chars: if planted(Bug::StopWithinToken) {
                0
            } else {
                longest.saturating_sub(1)
            },
            tail: String::new(),
            stopped: false,
        }
    }

    /// Takes the text that the `num_output_tokens`-th output token (counted from 1) completed.
    ///
    /// After a stop string was found, all further text is dropped.
    pub fn push(&mut self, piece: &str, num_output_tokens: usize) -> Released {
        if self.stopped {
            return Released::default();
        }
        let released_bytes = if self.include_stop_str_in_output { self.tail.len() } else { 0 };
        let mut text = std::mem::take(&mut self.tail);
        text.push_str(piece);
        let new_char_count =
            if num_output_tokens > self.min_tokens { piece.chars().count() } else { 0 };
        let include = self.include_stop_str_in_output;
        if let Some(found) = check_stop_strings(&text, new_char_count, &self.stops, include) {
            self.stopped = true;
            let kept = &text[released_bytes..found.cut.unwrap_or(text.len())];
            return Released { text: kept.to_owned(), stop_index: Some(found.stop_index) };
        }
        let tail_start = byte_offset_from_end(&text, self.overlap_chars);
        self.tail = text.split_off(tail_start);
        if include {
            // The tail is kept only for matching: all of it is released at once.
            return Released { text: piece.to_owned(), stop_index: None };
        }
        Released { text, stop_index: None }
    }

    /// Ends the output without a stop string and returns the text that was held back.
    pub fn finish(&mut self) -> String {
        let tail = std::mem::take(&mut self.tail);
        let held = !self.stopped && !self.include_stop_str_in_output;
        self.stopped = true;
        if held { tail } else { String::new() }
    }
}

#[cfg(test)]
#[path = "strings_tests.rs"]
mod tests;
