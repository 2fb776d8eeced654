//! Pace: how many guesses are worth their time.
//!
//! A step of `n` requests takes about `a + b·t` for `t` draws, and yields `n` tokens without
//! guesses. The guess at place `j` of a request is right with a probability of about `p^j`. It
//! takes the time `b` to verify, and `c` to make. It is worth that if its tokens per time are at
//! least those of the step: `p^j / (b + c) ≥ n / (a + b·n)`. All four numbers are measured. Outputs
//! do not depend on them.
//!
//! The tokens of prompts in a step have a time of their own, which is measured beside `b`. On
//! servers with short answers, nearly every step has some.
//!
//! A model with states computes the token of a right guess again, which takes `b` once more:
//! `p^j / (b + c + p^j·b) ≥ n / (a + b·n)`.
//!
//! Measuring costs time too, where no guess is worth it. That is so above all in a full batch: a
//! token more costs almost as much as its share of the step. So only batches of few requests begin
//! with trials. Requests share what they learn of how often guesses are right. While none are worth
//! it, one request tries two guesses now and then, for all of them. A try may be dear, because a
//! draft model first reads the whole request. So it also waits until the last one's time is small
//! beside that of the steps since.

use super::cost::TRIAL_REQUESTS;

/// How fast old results of guesses lose weight.
const RATE_DECAY: f64 = 0.9;
/// The same for the results of all requests.
const SHARED_DECAY: f64 = 0.99;
/// Weight of the rate that is assumed before the first guess.
const PRIOR_WEIGHT: f64 = 2.0;
/// Number of steps without guesses after which a request alone tries one again. Up to
/// [`TRIAL_REQUESTS`] try as often together. More requests do so more often, because the try of one
/// costs them less.
const PROBE_INTERVAL: usize = 32;
/// Number of guesses of such a try. The time of the second one has no part of reading the text.
const NUM_TRIED: usize = 2;
/// Largest share of the time of steps that such tries take.
const PROBE_SHARE: f64 = 1.0 / 128.0;

/// The share of guesses that are right, of those that follow right ones.
#[derive(Debug, Clone, Copy, Default)]
struct Rate {
    right: f64,
    tried: f64,
}

impl Rate {
    /// Learns the result of a step's guesses. The guesses after a wrong one say nothing. A place
    /// that the drafter did not fill counts as a wrong guess, because the place was reserved.
    fn learn(&mut self, num_places: usize, num_accepted: usize, decay: f64) {
        if num_places == 0 {
            return;
        }
        let is_one_wrong = num_accepted < num_places;
        self.right = self.right * decay + num_accepted as f64;
        self.tried = self.tried * decay + num_accepted as f64 + f64::from(is_one_wrong);
    }

    /// Returns the estimate, in `(0, 1)`. `prior` is the estimate without a result.
    fn or(self, prior: f64) -> f64 {
        (self.right + PRIOR_WEIGHT * prior) / (self.tried + PRIOR_WEIGHT)
    }
}

/// How often the guesses of one source are right in one request.
#[derive(Debug, Clone, Default)]
pub struct Acceptance(Rate);

impl Acceptance {
    /// Learns the result of a step's guesses.
    pub fn learn(&mut self, num_places: usize, num_accepted: usize) {
        self.0.learn(num_places, num_accepted, RATE_DECAY);
    }
}

/// How often the guesses of one source are right, in the requests of the last time. A new request
/// begins with this estimate.
#[derive(Debug, Clone)]
pub struct SharedAcceptance {
    prior: f64,
    rate: Rate,
    /// Number of times that no guess was worth its time, since one was tried nevertheless.
    num_without: usize,
    probe: Probe,
}

/// The time of the tries that do not seem to be worth it.
#[derive(Debug, Clone, Copy, Default)]
struct Probe {
    /// Whether the last answer of [`SharedAcceptance::num_wanted`] asks for one.
    is_asked: bool,
    /// Time that the last one took, in microseconds.
    time: f64,
    /// Time of the steps since it was made.
    since: f64,
}

impl SharedAcceptance {
    /// Returns the estimate before the first guess.
    #[must_use]
    pub fn new(prior: f64) -> Self {
        Self { prior, rate: Rate::default(), num_without: 0, probe: Probe::default() }
    }

    /// Learns the result of a request's guesses in a step.
    pub fn learn(&mut self, num_places: usize, num_accepted: usize) {
        self.rate.learn(num_places, num_accepted, SHARED_DECAY);
    }

    /// Learns the time of a step, in microseconds.
    pub fn learn_step(&mut self, micros: f64) {
        self.probe.since += micros;
    }

    /// Learns the time of a try, in microseconds: that to make the guesses of its step. A drafter
    /// that still reads a text makes none.
    pub fn learn_try(&mut self, micros: f64) {
        (self.probe.time, self.probe.since) = (micros, 0.0);
    }

    /// Returns whether the last answer of [`SharedAcceptance::num_wanted`] asks for a try.
    #[must_use]
    pub fn asks_for_try(&self) -> bool {
        self.probe.is_asked
    }

    /// Returns the estimated rate, in `(0, 1)`.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.rate.or(self.prior)
    }

    /// Returns how many guesses, at most `most`, the next step of `num_requests` requests should
    /// verify for the request with the results `own`. From time to time two guesses are tried
    /// though they do not seem to be worth their time.
    pub fn num_wanted(
        &mut self,
        own: &Acceptance,
        break_even: f64,
        num_requests: usize,
        most: usize,
    ) -> usize {
        let num_wanted = match break_even {
            even if even <= 0.0 => most,
            even if even >= 1.0 => 0,
            even => ((even.ln() / own.0.or(self.rate()).ln()) as usize).min(most),
        };
        self.probe.is_asked = false;
        if num_wanted > 0 {
            return num_wanted;
        }
        self.num_without += 1;
        // One more, so that requests which come in the same order each time take turns.
        let patience = PROBE_INTERVAL * num_requests.div_ceil(TRIAL_REQUESTS).max(1) + 1;
        if self.num_without < patience || self.probe.time > PROBE_SHARE * self.probe.since {
            return 0;
        }
        self.num_without = 0;
        self.probe.is_asked = most > 0;
        most.min(NUM_TRIED)
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::cost::{NUM_TRIALS, StepCost},
        *,
    };
    #[test]
    fn a_drafter_without_guesses_is_not_tried_for_ever() {
        let mut cost = StepCost::measured(900.0, 30.0);
        cost.num_guessed = 0;
        let (mut empty, mut shared) = (Acceptance::default(), SharedAcceptance::new(0.7));
        for _ in 0..NUM_TRIALS {
            assert_eq!(shared.num_wanted(&empty, cost.break_even(4), 4, 4), 4);
            cost.learn_guesses(0, 1.0);
            empty.learn(4, 0);
            shared.learn(4, 0);
        }
        let num_wanted = shared.num_wanted(&empty, cost.break_even(4), 4, 4);
        assert_eq!(num_wanted, 0, "no place is reserved");
    }

    #[test]
    fn a_full_batch_tries_no_guesses_without_a_reason() {
        let mut cost = StepCost::measured(900.0, 30.0);
        cost.num_guessed = 0;
        assert!(cost.break_even(32) > 0.5);
        let new = Acceptance::default();
        // Guesses that are nearly always right are worth it at once.
        assert!(SharedAcceptance::new(0.95).num_wanted(&new, cost.break_even(32), 32, 4) > 0);
        assert_eq!(SharedAcceptance::new(0.5).num_wanted(&new, cost.break_even(32), 32, 4), 0);
    }

    #[test]
    fn a_new_request_begins_with_the_rate_of_the_others() {
        let mut shared = SharedAcceptance::new(0.7);
        assert!((shared.rate() - 0.7).abs() < 1e-9);
        (0..50).for_each(|_| shared.learn(4, 0));
        assert!(shared.rate() < 0.1, "{}", shared.rate());
        assert_eq!(shared.num_wanted(&Acceptance::default(), 0.3, 8, 4), 0);
        (0..50).for_each(|_| shared.learn(4, 4));
        assert_eq!(shared.num_wanted(&Acceptance::default(), 0.3, 8, 4), 4);
    }

    #[test]
    fn the_length_follows_the_rate_and_the_cost() {
        let mut shared = SharedAcceptance::new(0.7);
        let mut good = Acceptance::default();
        (0..20).for_each(|_| good.learn(4, 4));
        assert_eq!(shared.num_wanted(&good, 0.1, 1, 8), 8);
        let mut poor = Acceptance::default();
        (0..20).for_each(|_| poor.learn(4, 0));
        assert!(shared.num_wanted(&poor, 0.1, 1, 8) <= 1);
        assert_eq!(shared.num_wanted(&poor, 0.5, 1, 8), 0);
        assert_eq!(shared.num_wanted(&good, 1.0, 1, 8), 0, "a step that costs more gains nothing");
        assert_eq!(shared.num_wanted(&good, 0.0, 1, 8), 8);
    }

    #[test]
    fn hopeless_guesses_are_tried_again_now_and_then_by_all_requests_in_turn() {
        for (num_requests, steps_between) in [(1, 33), (4, 8), (32, 8)] {
            let mut shared = SharedAcceptance::new(0.2);
            let mut tries = vec![0; num_requests];
            for _ in 0..num_requests * 100 {
                for tries in &mut tries {
                    // Each is a new request: short ones keep nothing.
                    let num = shared.num_wanted(&Acceptance::default(), 0.5, num_requests, 8);
                    *tries += usize::from(num > 0);
                }
            }
            let all: usize = tries.iter().sum();
            assert!(all.abs_diff(num_requests * 100 / steps_between) <= 2, "{all} tries");
            assert!(num_requests == 32 || tries.iter().all(|tries| *tries > 0), "{tries:?}");
        }
    }

    #[test]
    fn tries_take_a_small_share_of_the_time() {
        for (make, step) in [(1.0, 1_000.0), (500.0, 1_000.0), (20_000.0, 1_000.0)] {
            let mut shared = SharedAcceptance::new(0.2);
            let (mut tries, mut num_wanted) = (0, 0);
            for _ in 0..20_000 {
                if num_wanted > 0 {
                    tries += 1;
                    assert!(shared.asks_for_try());
                    shared.learn_try(make);
                }
                shared.learn_step(step);
                num_wanted = shared.num_wanted(&Acceptance::default(), 0.5, 1, 8);
            }
            let (share, most) = (f64::from(tries) * make / (20_000.0 * step), 1.1 * PROBE_SHARE);
            assert!(tries > 5 && share < most, "{make}: {tries}, {share}");
        }
    }

    #[test]
    fn short_requests_find_that_guesses_have_become_right() {
        let mut shared = SharedAcceptance::new(0.7);
        (0..200).for_each(|_| shared.learn(4, 0));
        let mut num_steps = 0;
        // Each request has ten steps.
        while shared.num_wanted(&Acceptance::default(), 0.5, 1, 4) < 2 {
            for _ in 0..10 {
                let num_wanted = shared.num_wanted(&Acceptance::default(), 0.5, 1, 4);
                shared.learn(num_wanted, num_wanted);
                num_steps += 1;
            }
            assert!(num_steps < 10_000, "they are never tried");
        }
    }
}
