//! Log-probabilities of the unmodified row (`raw_logprobs`).

use super::select::{by_rank, largest, max_logit};
use crate::simd::{Isa, Kernel, LANES, Simd, exp, sum_of};

/// Log-probabilities of one token and of the likeliest tokens.
#[derive(Debug, Clone, PartialEq)]
pub struct LogprobRow {
    /// (token id, log-probability, rank). The first entry is the token asked about, ranked by the
    /// number of tokens at least as likely. The likeliest tokens follow in order, ranked from 1.
    /// The named tokens that are not among them come last, ranked like the first.
    pub entries: Vec<(u32, f32, u32)>,
}

/// Returns the log-softmax of `logits` `[vocab]` at `token`, at the `k` likeliest tokens, and at
/// those `named`. Named tokens outside the row are left out.
///
/// # Panics
/// If `token` is outside the row.
#[must_use]
pub fn logprob_row(logits: &[f32], token: u32, k: u32, named: &[u32]) -> LogprobRow {
    let normaliser = log_sum_exp(logits);
    let logit = logits[token as usize];
    let rank = |logit: f32| logits.iter().filter(|l| **l >= logit).count() as u32;
    let logprob = |logit: f32| (f64::from(logit) - normaliser) as f32;
    let mut likeliest = Vec::new();
    largest(logits, f32::NEG_INFINITY, k as usize, &mut likeliest);
    likeliest.sort_unstable_by(by_rank);
    let mut entries = Vec::with_capacity(1 + likeliest.len() + named.len());
    entries.push((token, logprob(logit), rank(logit)));
    entries.extend(likeliest.iter().zip(1..).map(|((l, id), rank)| (*id, logprob(*l), rank)));
    for &id in named {
        let is_there = entries.iter().any(|(there, ..)| *there == id);
        if let Some(&logit) = logits.get(id as usize).filter(|_| !is_there) {
            entries.push((id, logprob(logit), rank(logit)));
        }
    }
    LogprobRow { entries }
}

/// Returns `ln Σ exp(l)`.
fn log_sum_exp(logits: &[f32]) -> f64 {
    let max = max_logit(logits);
    f64::from(max) + Isa::active().run(ExpSum { logits, max }).ln()
}

/// The sum `Σ exp(l - max)`: stretches in f32 lanes, added in f64.
struct ExpSum<'a> {
    logits: &'a [f32],
    max: f32,
}

impl Kernel for ExpSum<'_> {
    type Output = f64;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> f64 {
        const STRETCH: usize = 64 * LANES;
        let mut total = 0.0;
        for stretch in self.logits.chunks(STRETCH) {
            let (vectors, rest) = stretch.as_chunks::<LANES>();
            let mut padded = [f32::NEG_INFINITY; LANES];
            padded[..rest.len()].copy_from_slice(rest);
            let shift = s.splat(-self.max);
            let mut sum = exp(s, s.add(s.load(&padded), shift));
            for v in vectors {
                sum = s.add(sum, exp(s, s.add(s.load(v), shift)));
            }
            total += f64::from(sum_of(s, sum));
        }
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_comes_first_then_the_likeliest() {
        let row = logprob_row(&[1.0, 2.0, 3.0, 4.0], 1, 2, &[]);
        // The output of torch's log_softmax([1, 2, 3, 4]).
        let expected = [(1, -2.440_19, 3), (3, -0.440_19, 1), (2, -1.440_19, 2)];
        assert_eq!(row.entries.len(), 3);
        for ((id, logprob, rank), (e_id, e_logprob, e_rank)) in row.entries.iter().zip(expected) {
            assert_eq!((*id, *rank), (e_id, e_rank));
            assert!((logprob - e_logprob).abs() < 1e-5);
        }
    }

    #[test]
    fn a_tied_token_ranks_behind_all_it_is_tied_with() {
        let row = logprob_row(&[0.0, 0.0, 0.0, -1.0], 0, 2, &[]);
        assert_eq!(
            row.entries.iter().map(|e| (e.0, e.2)).collect::<Vec<_>>(),
            [(0, 3), (0, 1), (1, 2)]
        );
    }

    #[test]
    fn more_than_the_vocabulary_gives_all_of_it() {
        assert_eq!(logprob_row(&[0.0, 1.0], 0, 9, &[]).entries.len(), 3);
    }

    #[test]
    fn named_tokens_come_last_each_once() {
        let row = logprob_row(&[1.0, 2.0, 3.0, 4.0], 1, 1, &[0, 3, 9, 1, 0]);
        let told: Vec<_> = row.entries.iter().map(|e| (e.0, e.2)).collect();
        assert_eq!(told, [(1, 3), (3, 1), (0, 4)]);
        assert!((row.entries[2].1 - -3.440_19).abs() < 1e-5);
    }
}
