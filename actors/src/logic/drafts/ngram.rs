//! Guesses by prompt lookup: the tokens that followed the last occurrence of the text's end. The
//! method is vLLM's `ngram`, first described as prompt lookup decoding (Saxena, 2023).

use crate::logic::request::ids::TokenId;

/// The lengths of n-grams that are looked up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NgramLookup {
    /// Smallest number of tokens that must agree, at least 1.
    pub min: usize,
    /// Number of tokens that are compared at most, at least `min`.
    pub max: usize,
}

impl NgramLookup {
    /// Appends at most `most` guesses of the tokens after `tokens`. Looks for the earlier place
    /// that agrees with the end of `tokens` in most tokens, up to `max`. Of several, the last one
    /// counts. Its continuation may run into the guesses themselves, so a short period is repeated.
    /// Takes time in proportion to the text.
    pub fn propose(&self, tokens: &[TokenId], most: usize, guesses: &mut Vec<TokenId>) {
        let Some(from) = self.place(tokens) else { return };
        let first = guesses.len();
        for index in 0..most {
            let at = from + index;
            let guess = match at.checked_sub(tokens.len()) {
                None => tokens[at],
                Some(beyond) => guesses[first + beyond],
            };
            guesses.push(guess);
        }
    }

    /// Returns the place after the best earlier occurrence.
    fn place(&self, tokens: &[TokenId]) -> Option<usize> {
        let (&last, _) = tokens.split_last()?;
        let (mut best, mut best_len) = (None, self.min.max(1) - 1);
        for end in (1..tokens.len()).rev() {
            if tokens[end - 1] != last {
                continue;
            }
            let pairs = tokens[..end].iter().rev().zip(tokens.iter().rev());
            let len = pairs.take(self.max).take_while(|(there, here)| there == here).count();
            if len > best_len {
                (best, best_len) = (Some(end), len);
            }
            if best_len >= self.max {
                break;
            }
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn guesses(min: usize, max: usize, text: &str, most: usize) -> String {
        let tokens: Vec<TokenId> = text.chars().map(TokenId::from).collect();
        let mut guesses = Vec::new();
        NgramLookup { min, max }.propose(&tokens, most, &mut guesses);
        guesses.into_iter().filter_map(char::from_u32).collect()
    }

    #[test]
    fn the_longest_agreement_is_continued_and_of_equal_ones_the_last() {
        assert_eq!(guesses(2, 4, "the cat. the cow. the c", 3), "ow.");
        assert_eq!(guesses(2, 8, "a cat. the cow. a c", 3), "at.");
        assert_eq!(guesses(2, 4, "abxcdy", 3), "", "nothing occurs twice");
        assert_eq!(guesses(3, 4, "abxaby", 3), "");
    }

    #[test]
    fn a_short_period_is_repeated() {
        assert_eq!(guesses(1, 3, "xyxyxy", 5), "xyxyx");
        assert_eq!(guesses(1, 3, "aa", 4), "aaaa");
    }

    #[test]
    fn a_text_without_a_past_has_no_guesses() {
        assert_eq!(guesses(1, 3, "", 4), "");
        assert_eq!(guesses(1, 3, "a", 4), "");
    }

    proptest! {
        /// Compares with a search over all lengths and places.
        #[test]
        fn it_finds_what_a_search_over_all_places_finds(
            tokens in prop::collection::vec(0..3_u32, 0..40), min in 1..4_usize, more in 0..4_usize,
        ) {
            let max = min + more;
            let place = NgramLookup { min, max }.place(&tokens);
            let agrees = |len: usize, end: usize| {
                end >= len && tokens[end - len..end] == tokens[tokens.len() - len..]
            };
            let ends = || (1..tokens.len()).rev();
            let longest = (min..=max.min(tokens.len())).rev();
            let expected = longest.filter_map(|len| ends().find(|&end| agrees(len, end))).next();
            prop_assert_eq!(place, expected);
        }
    }
}
