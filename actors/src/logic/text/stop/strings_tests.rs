//! vLLM's golden cases, and a comparison of the matcher with a naive one over the whole text.

use proptest::prelude::*;

use super::*;

fn check(text: &str, new: usize, stops: &[&str], include: bool) -> Option<(usize, Option<usize>)> {
    check_stop_strings(text, new, &owned(stops), include).map(|found| (found.stop_index, found.cut))
}

fn owned(stops: &[&str]) -> Vec<String> {
    stops.iter().map(|&stop| stop.to_owned()).collect()
}

#[test]
fn cut_offsets() {
    assert_eq!(check("hello world stop more", 9, &["stop"], false), Some((0, Some(12))));
    assert_eq!(check("hello world stop more", 9, &["stop"], true), Some((0, Some(16))));
    assert_eq!(check("hello world stop", 4, &["stop"], true), Some((0, None)));
    assert_eq!(check("hello world stop", 4, &["stop"], false), Some((0, Some(12))));
}

#[test]
fn the_earliest_completion_wins_then_the_order_of_the_list() {
    assert_eq!(check("abcdef", 6, &["de", "bc"], false), Some((1, Some(1))));
    assert_eq!(check("abcdef", 6, &["bcd", "cd"], false), Some((0, Some(1))));
    assert_eq!(check("abcdef", 6, &["cd", "bcd"], false), Some((0, Some(2))));
}

#[test]
fn nothing_new_stops_nothing() {
    assert_eq!(check("a stop", 0, &["stop"], false), None);
    assert_eq!(check("a stop", 6, &[], false), None);
    assert_eq!(check("a stop", 6, &[""], false), None);
}

#[test]
fn only_what_ends_in_the_new_text_counts() {
    assert_eq!(check("stop and on", 3, &["stop"], false), None);
    assert_eq!(check("stop and stop", 1, &["stop"], false), Some((0, Some(9))));
    assert_eq!(check("st", 100, &["st"], false), Some((0, Some(0))), "more new than there is");
}

#[test]
fn characters_are_counted_and_bytes_are_cut() {
    // Four new characters, twelve new bytes.
    assert_eq!(check("é终了です了", 4, &["です"], false), Some((0, Some("é终了".len()))));
    assert_eq!(check("é终了です了", 1, &["です"], false), None);
    assert_eq!(check("é终了です了", 2, &["です"], true), Some((0, Some("é终了です".len()))));
}

#[test]
fn a_stop_string_across_pieces_is_never_shown() {
    let mut matcher = StopStringMatcher::new(owned(&["</end>"]), false, 0);
    let pieces = ["Good", "bye", "<", "/e", "nd", ">", "never"];
    let mut shown = String::new();
    let mut stopped = None;
    for (index, piece) in pieces.iter().enumerate() {
        let released = matcher.push(piece, index + 1);
        shown.push_str(&released.text);
        stopped = stopped.or(released.stop_index);
        assert!("Goodbye".starts_with(&shown), "showed {shown:?}");
    }
    assert_eq!((shown.as_str(), stopped), ("Goodbye", Some(0)));
    assert_eq!(matcher.finish(), "");
}

#[test]
fn nothing_is_held_back_when_the_stop_string_is_kept() {
    let mut matcher = StopStringMatcher::new(owned(&["stop"]), true, 0);
    assert_eq!(matcher.push("a st", 1).text, "a st");
    let last = matcher.push("op there", 2);
    assert_eq!(last, Released { text: "op".to_owned(), stop_index: Some(0) });
}

#[test]
fn one_character_less_than_the_longest_is_held_back() {
    let mut matcher = StopStringMatcher::new(owned(&["ab", "wxyz"]), false, 0);
    assert_eq!(matcher.push("12345", 1).text, "12");
    assert_eq!(matcher.push("6", 2).text, "3");
    assert_eq!(matcher.finish(), "456");
}

#[test]
fn min_tokens_shields_their_text() {
    let mut matcher = StopStringMatcher::new(owned(&["stop"]), false, 2);
    let first = matcher.push("stop", 1);
    assert_eq!(first, Released { text: "s".to_owned(), stop_index: None });
    let second = matcher.push(" st", 2);
    assert_eq!(second, Released { text: "top".to_owned(), stop_index: None });
    // The third token completes this one, so it counts, though it began before.
    let third = matcher.push("op", 3);
    assert_eq!(third, Released { text: " ".to_owned(), stop_index: Some(0) });
}

/// Searches the whole text and ignores completions within its first `shielded` characters.
fn naive(text: &str, shielded: usize, stops: &[String], include: bool) -> (String, Option<usize>) {
    let chars: Vec<char> = text.chars().collect();
    for end in shielded + 1..=chars.len() {
        let prefix: String = chars[..end].iter().collect();
        for (index, stop) in stops.iter().enumerate() {
            if prefix.ends_with(stop.as_str()) {
                let kept = if include { prefix.len() } else { prefix.len() - stop.len() };
                return (prefix[..kept].to_owned(), Some(index));
            }
        }
    }
    (text.to_owned(), None)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    #[test]
    fn agrees_with_the_naive_matcher_however_the_text_is_cut(
        pieces in prop::collection::vec("[aé终🦀]{0,4}", 0..12),
        stops in prop::collection::vec("[aé终🦀]{1,4}", 0..4),
        include: bool,
        min_tokens in 0usize..6,
    ) {
        let text = pieces.concat();
        let shielded = pieces.iter().take(min_tokens).map(|piece| piece.chars().count()).sum();
        let (expected, expected_stop) = naive(&text, shielded, &stops, include);

        let mut matcher = StopStringMatcher::new(stops, include, min_tokens);
        let (mut shown, mut stopped) = (String::new(), None);
        for (index, piece) in pieces.iter().enumerate() {
            let released = matcher.push(piece, index + 1);
            shown.push_str(&released.text);
            prop_assert!(expected.starts_with(&shown), "{shown:?} is no start of {expected:?}");
            stopped = stopped.or(released.stop_index);
        }
        shown.push_str(&matcher.finish());
        prop_assert_eq!((shown, stopped), (expected, expected_stop));
    }
}
