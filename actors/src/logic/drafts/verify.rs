//! The draws of a step that count.

use crate::logic::{
    planted::{Bug, planted},
    request::ids::TokenId,
};

/// Returns how many of a step's draws count, if these guesses were computed. `draws[0]` follows the
/// request's last token, and `draws[i]` follows `guesses[i - 1]`. A draw counts if all guesses
/// before it equal the draws at their places. The first draw always counts.
#[must_use]
pub fn num_valid_draws(guesses: &[TokenId], draws: &[TokenId]) -> usize {
    if planted(Bug::AcceptAnyDraft) {
        return draws.len();
    }
    let is_right = |(guess, draw): &(&TokenId, &TokenId)| guess == draw;
    let num_right = guesses.iter().zip(draws).take_while(is_right).count();
    draws.len().min(num_right + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draw_counts_if_all_guesses_before_it_are_right() {
        let cases: &[(&[TokenId], &[TokenId], usize)] = &[
            (&[], &[7], 1),
            (&[7], &[7, 8], 2),
            (&[9], &[7, 8], 1),
            (&[7, 9, 5], &[7, 8, 5, 6], 2),
            (&[7, 8, 5], &[7, 8, 5, 6], 4),
        ];
        for (guesses, draws, expected) in cases {
            assert_eq!(num_valid_draws(guesses, draws), *expected, "{guesses:?} {draws:?}");
        }
    }

    /// A draw may be missing, because no token could be drawn at its place.
    #[test]
    fn draws_that_are_missing_do_not_count() {
        assert_eq!(num_valid_draws(&[7, 8], &[]), 0);
        assert_eq!(num_valid_draws(&[7, 8], &[7]), 1);
        assert_eq!(num_valid_draws(&[7, 8], &[7, 8]), 2);
    }
}
