//! The search itself: which beams live, which have ended, and which are best. Knows no engine.

use std::{cmp::Ordering, sync::Arc};

use playhouse_actors::logic::request::{
    FinishReason, StopReason,
    ids::TokenId,
    outputs::{Logprob, SampledToken, TokenLogprobs},
};

/// What is searched for.
#[derive(Debug, Clone)]
pub(super) struct SearchParams {
    /// Beams that live at a time, and that come out; at least 1.
    pub(super) beam_width: usize,
    /// Steps at most.
    pub(super) max_tokens: usize,
    /// A score is the sum of the log-probabilities over the length to the power of this.
    pub(super) length_penalty: f64,
    /// Tokens that end a beam.
    pub(super) eos_token_ids: Vec<TokenId>,
    /// Whether the token that ended a beam is one of its tokens.
    pub(super) include_stop_token: bool,
    /// Likely tokens to keep beside each token; `None`: no log-probabilities at all.
    pub(super) num_logprobs: Option<usize>,
}

/// A search over what a model says comes next.
#[derive(Debug)]
pub(super) struct BeamSearch {
    params: SearchParams,
    num_prompt_tokens: usize,
    num_steps: usize,
    /// At most `beam_width`, likeliest first, all of the same length.
    live: Vec<Hypothesis>,
    /// At most `beam_width`, best score first.
    ended: Vec<(f64, Hypothesis)>,
}

/// A way to go on from the prompt.
#[derive(Debug, Clone, Default)]
pub(super) struct Hypothesis {
    pub(super) token_ids: Vec<TokenId>,
    /// For each token its row, where rows are kept: shared by all beams that came through it.
    rows: Vec<Arc<TokenLogprobs>>,
    pub(super) cum_logprob: f64,
    ended_by: Option<TokenId>,
}

impl BeamSearch {
    pub(super) fn new(num_prompt_tokens: usize, params: SearchParams) -> Self {
        let live = vec![Hypothesis::default()];
        Self { params, num_prompt_tokens, num_steps: 0, live, ended: Vec::new() }
    }

    /// How many of the likeliest next tokens a step needs for each beam: even if as many of them
    /// end it as there are beams, enough are left to fill all beams.
    pub(super) fn num_candidates(beam_width: usize) -> usize {
        2 * beam_width
    }

    /// The beams to be extended.
    pub(super) fn live(&self) -> &[Hypothesis] {
        &self.live
    }

    /// Whether more steps could not change what comes out.
    pub(super) fn is_done(&self) -> bool {
        let Some(best) = self.live.first() else { return true };
        if self.num_steps >= self.params.max_tokens {
            return true;
        }
        // A beam only gets less likely. So this is the best score that one could still reach: at
        // once, or, where length is rewarded, at the very end.
        let length = match self.params.length_penalty > 0.0 {
            true => self.num_prompt_tokens + self.params.max_tokens,
            false => self.num_prompt_tokens + best.token_ids.len(),
        };
        let reachable = score(best.cum_logprob, length, self.params.length_penalty);
        let is_full = self.ended.len() == self.params.beam_width;
        is_full && self.ended.last().is_some_and(|(worst, _)| *worst >= reachable)
    }

    /// One step: `next[i]` are the likeliest tokens after live beam `i`, likeliest first.
    pub(super) fn extend(&mut self, next: &[TokenLogprobs]) {
        self.num_steps += 1;
        let before = std::mem::take(&mut self.live);
        let mut candidates: Vec<(f64, usize, Logprob)> = Vec::new();
        for (beam, row) in before.iter().zip(next).enumerate().map(|(i, (_, row))| (i, row)) {
            let likeliest = Self::num_candidates(self.params.beam_width);
            for &entry in row.iter().take(likeliest) {
                let cum_logprob = before[beam].cum_logprob + f64::from(entry.logprob);
                if self.params.eos_token_ids.contains(&entry.token_id) {
                    let ended = self.ended(&before[beam], entry, cum_logprob, row);
                    self.keep_if_good(ended);
                } else {
                    candidates.push((cum_logprob, beam, entry));
                }
            }
        }
        // A stable sort: of two that are equally likely, the one of the likelier beam goes first.
        candidates.sort_by(|(a, ..), (b, ..)| likelier(*a, *b));
        candidates.truncate(self.params.beam_width);
        let extended = candidates.into_iter().map(|(cum_logprob, beam, entry)| {
            self.extended(&before[beam], entry, cum_logprob, &next[beam])
        });
        self.live = extended.collect();
    }

    /// The best beams, best first, with their scores.
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

    /// Of equal scores, the one that was there first is the better one.
    fn keep_if_good(&mut self, hypothesis: Hypothesis) {
        let length = self.num_prompt_tokens + hypothesis.text_token_ids().len();
        let score = score(hypothesis.cum_logprob, length, self.params.length_penalty);
        let is_better =
            |(other, _): &(f64, Hypothesis)| likelier(*other, score) != Ordering::Greater;
        let place = self.ended.partition_point(is_better);
        self.ended.insert(place, (score, hypothesis));
        self.ended.truncate(self.params.beam_width);
    }
}

impl Hypothesis {
    /// Its tokens without the one that ended it.
    pub(super) fn text_token_ids(&self) -> &[TokenId] {
        match (self.ended_by, self.token_ids.split_last()) {
            (Some(end), Some((&last, rest))) if end == last => rest,
            _ => &self.token_ids,
        }
    }

    /// Its tokens as the engine gives them out.
    pub(super) fn tokens(&self) -> Vec<SampledToken> {
        let rows = self.rows.iter().map(|row| Some(TokenLogprobs::clone(row)));
        let rows = rows.chain(std::iter::repeat(None));
        let token = |(&token_id, logprobs)| SampledToken { token_id, logprobs };
        self.token_ids.iter().zip(rows).map(token).collect()
    }

    /// Why it ended.
    pub(super) fn finish_reason(&self) -> FinishReason {
        let stop = |token| FinishReason::Stop(Some(StopReason::Token(token)));
        self.ended_by.map_or(FinishReason::Length, stop)
    }
}

/// Puts the greater one first.
fn likelier(a: f64, b: f64) -> Ordering {
    b.total_cmp(&a)
}

/// `length` counts the prompt, as vLLM's does.
fn score(cum_logprob: f64, length: usize, length_penalty: f64) -> f64 {
    cum_logprob / (length as f64).powf(length_penalty)
}

#[cfg(test)]
#[path = "search_tests.rs"]
mod tests;
