//! Guesses of short texts.

use std::sync::Arc;

use super::*;

const A: RequestId = RequestId(1);
const B: RequestId = RequestId(2);

fn tokens(text: &str) -> Vec<TokenId> {
    text.chars().map(TokenId::from).collect()
}

struct Texts(SuffixTexts);

impl Texts {
    fn new() -> Self {
        Self(SuffixTexts::new(SuffixConfig::default()))
    }

    fn guess(&mut self, request: RequestId, salt: Option<&str>, text: &str, most: usize) -> String {
        let (mut guesses, salt) = (Vec::new(), salt.map(Arc::from));
        self.0.propose(request, (&tokens(text), 0), salt.as_ref(), most, &mut guesses);
        guesses.into_iter().filter_map(char::from_u32).collect()
    }
}

#[test]
fn a_text_is_continued_as_it_was_before() {
    let mut texts = Texts::new();
    assert_eq!(texts.guess(A, None, "let count = 1; let c", 3), "oun", "as long as the match");
    assert_eq!(texts.guess(A, None, "let count = 1; let cou", 9), "nt = 1;");
    assert_eq!(texts.guess(B, None, "abcdefg", 9), "", "nothing occurs twice");
}

#[test]
fn the_likeliest_continuation_is_taken() {
    let mut texts = Texts::new();
    assert_eq!(texts.guess(A, None, "xyA xyB xyB xy", 1), "B");
}

#[test]
fn unlikely_guesses_are_left_out() {
    let mut texts =
        Texts(SuffixTexts::new(SuffixConfig { min_token_prob: 0.6, ..SuffixConfig::default() }));
    assert_eq!(texts.guess(A, None, "xyA xyB.xy", 4), "", "each with a probability of a half");
}

#[test]
fn outputs_are_shared_within_a_group_alone() {
    let mut texts = Texts::new();
    texts.guess(A, Some("s"), "a secret sentence", 4);
    texts.0.forget(A, &tokens("a secret sentence"), true);
    assert_eq!(texts.guess(B, None, "my secret", 6), "");
    texts.0.forget(B, &[], false);
    assert_eq!(texts.guess(B, Some("s"), "my secret", 6), " sente");
}

#[test]
fn an_output_that_did_not_end_is_not_kept() {
    let mut texts = Texts::new();
    texts.guess(A, None, "some text here", 4);
    texts.0.forget(A, &tokens("some text here"), false);
    assert_eq!(texts.guess(B, None, "my tex", 4), "");
}

#[test]
fn old_outputs_are_forgotten() {
    let config = SuffixConfig { max_cached_requests: 4, ..SuffixConfig::default() };
    let mut texts = Texts(SuffixTexts::new(config));
    let outputs = ["first abc", "second bcd", "third cde", "fourth def", "fifth efg"];
    for (id, output) in (10..).zip(outputs) {
        texts.guess(RequestId(id), None, output, 1);
        texts.0.forget(RequestId(id), &tokens(output), true);
    }
    assert_eq!(texts.guess(A, None, "a fifth", 4), " efg");
    assert_eq!(texts.guess(B, None, "a firs", 4), "", "two generations of two outputs");
    assert!(texts.0.own.len() <= 2);
}

#[test]
fn a_period_is_repeated_beyond_the_end_of_the_text() {
    let mut texts = Texts::new();
    assert_eq!(texts.guess(A, None, "xyxyxyxyxy", 6), "xyxyxy");
}
