//! The search itself: live beams, ended beams, and their order. It does not know the engine.

use std::{cmp::Ordering, sync::Arc};

use playhouse_actors::logic::request::{
    FinishReason, StopReason,
    ids::TokenId,
    outputs::{Logprob, SampledToken, TokenLogprobs},
};

/// The parameters of a search.
#[derive(Debug, Clone)]
pub(super) struct SearchParams {
    /// The most beams that live at a time, and that are returned; at least 1.
    pub(super) beam_width: usize,
    /// The most steps.
    pub(super) max_tokens: usize,
    /// The exponent of the number of generated tokens. The sum of the log-probabilities is divided
    /// by that power.
    pub(super) length_penalty: f64,
    /// Tokens that end a beam.
    pub(super) eos_token_ids: Vec<TokenId>,
    /// Whether the token that ended a beam is one of its tokens.
    pub(super) include_stop_token: bool,
    /// Whether all tokens of a row are candidates, and not only the likeliest ones.
    pub(super) takes_whole_rows: bool,
    /// Likely tokens to keep with each token. `None` keeps no log-probabilities.
    pub(super) num_logprobs: Option<usize>,
}

/// A search for the likeliest outputs of a model.
#[derive(Debug)]
pub(super) struct BeamSearch {
    params: SearchParams,
    num_steps: usize,
    /// At most `beam_width` beams, likeliest first, all of the same length.
    live: Vec<Hypothesis>,
    /// At most `beam_width` beams, best score first.
    ended: Vec<(f64, Hypothesis)>,
}

/// A continuation of the prompt.
#[derive(Debug, Clone, Default)]
pub(super) struct Hypothesis {
    pub(super) token_ids: Vec<TokenId>,
    /// The row of each token, if rows are kept. Beams that share a token share its row.
    rows: Vec<Arc<TokenLogprobs>>,
    pub(super) cum_logprob: f64,
    ended_by: Option<TokenId>,
}

impl BeamSearch {
    pub(super) fn new(params: SearchParams) -> Self {
        Self { params, num_steps: 0, live: vec![Hypothesis::default()], ended: Vec::new() }
    }

    /// Returns how many of the likeliest next tokens a step needs for each beam. If `beam_width` of
    /// them end the beam, enough are left to fill all beams.
    pub(super) fn num_candidates(beam_width: usize) -> usize {
        2 * beam_width
    }

    /// Returns the beams to extend.
    pub(super) fn live(&self) -> &[Hypothesis] {
        &self.live
    }

    /// Returns whether further steps cannot change the result.
    pub(super) fn is_done(&self) -> bool {
        let Some(best) = self.live.first() else { return true };
        if self.num_steps >= self.params.max_tokens {
            return true;
        }
        // A beam only gets less likely. So this is the best score that a live beam can still reach:
        // at its present length, or at the full length if length is rewarded.
        let length = match self.params.length_penalty > 0.0 {
            true => self.params.max_tokens,
            false => best.token_ids.len(),
        };
        let reachable = score(best.cum_logprob, length, self.params.length_penalty);
        let is_full = self.ended.len() == self.params.beam_width;
        is_full && self.ended.last().is_some_and(|(worst, _)| *worst >= reachable)
    }

    /// Does one step. `next[i]` has the likeliest tokens after live beam `i`, likeliest first.
    pub(super) fn extend(&mut self, next: &[TokenLogprobs]) {
        self.num_steps += 1;
        let before = std::mem::take(&mut self.live);
        let mut candidates: Vec<(f64, usize, Logprob)> = Vec::new();
        for (beam, row) in before.iter().zip(next).enumerate().map(|(i, (_, row))| (i, row)) {
            let candidates_of_row = match self.params.takes_whole_rows {
                true => row.len(),
                false => Self::num_candidates(self.params.beam_width),
            };
            for &entry in row.iter().take(candidates_of_row) {
                let cum_logprob = before[beam].cum_logprob + f64::from(entry.logprob);
                if self.params.eos_token_ids.contains(&entry.token_id) {
                    let ended = self.ended(&before[beam], entry, cum_logprob, row);
                    self.keep_if_good(ended);
                } else {
                    candidates.push((cum_logprob, beam, entry));
                }
            }
        }
        // The sort is stable: of two equally likely candidates, that of the likelier beam is first.
        candidates.sort_by(|(a, ..), (b, ..)| likelier(*a, *b));
        candidates.truncate(self.params.beam_width);
        let extended = candidates.into_iter().map(|(cum_logprob, beam, entry)| {
            self.extended(&before[beam], entry, cum_logprob, &next[beam])
        });
        self.live = extended.collect();
    }

    /// Returns the best beams with their scores, best first.
    pub(super) fn finish(mut self) -> Vec<(f64, Hypothesis)> {
        for live in std::mem::take(&mut self.live) {
            self.keep_if_good(live);
        }
        self.ended
    }

    fn extended(
        &self,
        beam: &Hypothesis,
        entry: Logprob,
        cum_logprob: f64,
        row: &[Logprob],
    ) -> Hypothesis {
        let mut next = beam.clone();
        next.token_ids.push(entry.token_id);
        next.cum_logprob = cum_logprob;
        if let Some(count) = self.params.num_logprobs {
            let likely = row.iter().take(count).copied();
            next.rows.push(Arc::new(std::iter::once(entry).chain(likely).collect()));
        }
        next
    }

    fn ended(
        &self,
        beam: &Hypothesis,
        entry: Logprob,
        cum_logprob: f64,
        row: &[Logprob],
    ) -> Hypothesis {
        let mut ended = match self.params.include_stop_token {
            true => self.extended(beam, entry, cum_logprob, row),
            false => Hypothesis { cum_logprob, ..beam.clone() },
        };
        ended.ended_by = Some(entry.token_id);
        ended
    }

    /// Keeps a finished beam if it is among the best. Of equal scores, the earlier beam is better.
    fn keep_if_good(&mut self, hypothesis: Hypothesis) {
        let score = score(hypothesis.cum_logprob, hypothesis.length(), self.params.length_penalty);
        let is_better =
            |(other, _): &(f64, Hypothesis)| likelier(*other, score) != Ordering::Greater;
        let place = self.ended.partition_point(is_better);
        self.ended.insert(place, (score, hypothesis));
        self.ended.truncate(self.params.beam_width);
    }
}

impl Hypothesis {
    /// Returns its tokens without the token that ended it.
    pub(super) fn text_token_ids(&self) -> &[TokenId] {
        match (self.ended_by, self.token_ids.split_last()) {
            (Some(end), Some((&last, rest))) if end == last => rest,
            _ => &self.token_ids,
        }
    }

    /// Returns the number of generated tokens, with the one that ended it.
    fn length(&self) -> usize {
        self.text_token_ids().len() + usize::from(self.ended_by.is_some())
    }

    /// Returns its tokens in the form of the engine's outputs.
    pub(super) fn tokens(&self) -> Vec<SampledToken> {
        let rows = self.rows.iter().map(|row| Some(TokenLogprobs::clone(row)));
        let rows = rows.chain(std::iter::repeat(None));
        let token = |(&token_id, logprobs)| SampledToken { token_id, logprobs };
        self.token_ids.iter().zip(rows).map(token).collect()
    }

    /// Returns why it ended.
    pub(super) fn finish_reason(&self) -> FinishReason {
        let stop = |token| FinishReason::Stop(Some(StopReason::Token(token)));
        self.ended_by.map_or(FinishReason::Length, stop)
    }
}

/// Compares two scores; the greater one comes first.
fn likelier(a: f64, b: f64) -> Ordering {
    b.total_cmp(&a)
}

/// Returns the score of a beam with `length` generated tokens, as vLLM 0.33 and transformers do.
fn score(cum_logprob: f64, length: usize, length_penalty: f64) -> f64 {
    cum_logprob / (length.max(1) as f64).powf(length_penalty)
}

#[cfg(test)]
#[path = "search_tests.rs"]
mod tests;
