//! Pace: how many guesses are worth their time.
//!
//! A step of `n` requests takes about `a + b·t` for `t` draws, and yields `n` tokens without
//! guesses. The guess at place `j` of a request is right with a probability of about `p^j`. It
//! takes the time `b` to verify, and `c` to make. It is worth that if its tokens per time are at
//! least those of the step: `p^j / (b + c) ≥ n / (a + b·n)`. All four numbers are measured. Outputs
//! do not depend on them.
//!
//! The tokens of prompts in a step have a time of their own, which is measured beside `b`: some
//! servers give short answers, and nearly every step of theirs has some.
//!
//! A model with states computes the token of a right guess again, which takes `b` once more:
//! `p^j / (b + c + p^j·b) ≥ n / (a + b·n)`.
//!
//! Measuring costs time too, where no guess is worth it. That is so above all in a full batch: a
//! token more costs almost as much as its share of the step. So only batches of few requests begin
//! with trials. Requests share what they learn of how often guesses are right. While none are worth
//! it, one request tries one guess now and then, for all of them. A try may be dear, because a
//! draft model first reads the whole request. So it also waits until the last one's time is small
//! beside that of the steps since.

/// How fast old measurements of steps lose weight.
const STEP_DECAY: f64 = 0.99;
/// Time of one more token, as a share of a step's base, until it is measured.
const DEFAULT_TOKEN_SHARE: f64 = 1.0 / 8.0;
/// Variance of the numbers of tokens that the assumed time of a token is worth.
const PRIOR_VARIANCE: f64 = 0.05;
/// How fast old results of guesses lose weight.
const RATE_DECAY: f64 = 0.9;
/// The same for the results of all requests.
const SHARED_DECAY: f64 = 0.99;
/// Weight of the rate that is assumed before the first guess.
const PRIOR_WEIGHT: f64 = 2.0;
/// A guess must be this much better than even, because the numbers are estimates.
const MARGIN: f64 = 1.1;
/// Weight of a new measurement of the time to make guesses.
const GUESS_WEIGHT: f64 = 0.2;
/// Number of first steps with guesses that have as many as possible, to measure their cost.
const NUM_TRIALS: u32 = 16;
/// Largest number of requests in such a step.
const TRIAL_REQUESTS: usize = 4;
/// Number of steps without guesses after which a request alone tries one again. Up to
/// [`TRIAL_REQUESTS`] try as often together. More requests do so more often, because the try of one
/// costs them less.
const PROBE_INTERVAL: usize = 32;
/// Largest share of the time of steps that such tries take.
const PROBE_SHARE: f64 = 1.0 / 128.0;

/// The time of steps by their numbers of draws and of other tokens: a plane through recent steps.
#[derive(Debug, Clone, Default)]
pub struct StepCost {
    steps: StepSums,
    /// Time to make one guess, in microseconds.
    guess: f64,
    /// Number of steps for which guesses were wanted.
    num_guessed: u32,
    /// Whether right guesses are computed again.
    is_repeated: bool,
}

/// Weighted sums over steps, of which recent ones weigh most.
#[derive(Debug, Clone, Copy, Default)]
struct StepSums {
    weight: f64,
    draws: f64,
    others: f64,
    time: f64,
    draws_draws: f64,
    draws_others: f64,
    others_others: f64,
    draws_time: f64,
    others_time: f64,
}

impl StepSums {
    /// Adds a step. The times of long steps vary most, so they weigh least.
    fn add(&mut self, num_draws: usize, num_others: usize, micros: f64) {
        let (draws, others) = (num_draws as f64, num_others as f64);
        let weight = 1.0 / (draws + others).max(1.0).powi(2);
        let new = [
            (&mut self.weight, 1.0),
            (&mut self.draws, draws),
            (&mut self.others, others),
            (&mut self.time, micros),
            (&mut self.draws_draws, draws * draws),
            (&mut self.draws_others, draws * others),
            (&mut self.others_others, others * others),
            (&mut self.draws_time, draws * micros),
            (&mut self.others_time, others * micros),
        ];
        for (sum, value) in new {
            *sum = *sum * STEP_DECAY + weight * value;
        }
    }

    /// Returns the time of a step without tokens, and of one more draw: least squares.
    fn base_and_draw(&self) -> (f64, f64) {
        let weight = self.weight;
        if weight == 0.0 {
            return (1.0, DEFAULT_TOKEN_SHARE);
        }
        let (draws, others, time) = (self.draws / weight, self.others / weight, self.time / weight);
        // Until the numbers vary, a draw takes its usual share, and other tokens as long.
        let usual = DEFAULT_TOKEN_SHARE * time / (1.0 + DEFAULT_TOKEN_SHARE * (draws + others));
        let of_draws = self.draws_draws / weight - draws * draws + PRIOR_VARIANCE;
        let of_others = self.others_others / weight - others * others + PRIOR_VARIANCE;
        let of_both = self.draws_others / weight - draws * others;
        let with_draws = self.draws_time / weight - draws * time + PRIOR_VARIANCE * usual;
        let with_others = self.others_time / weight - others * time + PRIOR_VARIANCE * usual;
        // It is above zero, because the variances are at least those of the prior.
        let determinant = of_draws * of_others - of_both * of_both;
        let draw = (with_draws * of_others - with_others * of_both) / determinant;
        let draw = draw.clamp(0.0, time / draws.max(1.0));
        // The other tokens take what fits best beside that.
        let other = ((with_others - draw * of_both) / of_others).max(0.0);
        ((time - draw * draws - other * others).max(0.0), draw)
    }
}

impl StepCost {
    /// Returns the costs of a model. `is_repeated` says whether it computes right guesses again.
    #[must_use]
    pub fn new(is_repeated: bool) -> Self {
        Self { is_repeated, ..Self::default() }
    }

    /// Learns the time of a step in microseconds. It drew tokens at `num_draws` places, and
    /// computed `num_others` more tokens.
    pub fn learn(&mut self, num_draws: usize, num_others: usize, micros: f64) {
        self.steps.add(num_draws, num_others, micros);
    }

    /// Learns the time to make guesses, in microseconds. A step whose drafter had none counts as a
    /// step with guesses, because otherwise a drafter without guesses would be tried for ever.
    pub fn learn_guesses(&mut self, num_guesses: usize, micros: f64) {
        self.num_guessed = self.num_guessed.saturating_add(1);
        if num_guesses > 0 {
            let each = micros / num_guesses as f64;
            // The first guesses of a request take longer, because its prompt has to be read.
            self.guess += GUESS_WEIGHT * (each - self.guess);
        }
    }

    /// Returns the smallest probability with which a guess is worth its time in a step of
    /// `num_requests` requests.
    #[must_use]
    pub fn break_even(&self, num_requests: usize) -> f64 {
        match self.num_guessed < NUM_TRIALS && num_requests <= TRIAL_REQUESTS {
            true => 0.0,
            false => self.break_even_at(num_requests, self.guess),
        }
    }

    /// Returns the same for guesses that take no time to make.
    #[must_use]
    pub fn break_even_made(&self, num_requests: usize) -> f64 {
        self.break_even_at(num_requests, 0.0)
    }

    fn break_even_at(&self, num_requests: usize, guess: f64) -> f64 {
        let requests = num_requests.max(1) as f64;
        let (base, draw) = self.steps.base_and_draw();
        let step = base + draw * requests;
        if step <= 0.0 {
            return 1.0;
        }
        let even = MARGIN * requests * (draw + guess) / step;
        match self.is_repeated {
            false => even,
            // The rest of the step is worth a right guess. It is empty if the base is.
            true => even / (1.0 - requests * draw / step).max(f64::MIN_POSITIVE),
        }
    }
}

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
    /// verify for the request with the results `own`. From time to time one guess is tried though
    /// it does not seem to be worth its time.
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
        most.min(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the cost of a device whose steps take `base + token · tokens` microseconds.
    fn measured(base: f64, token: f64) -> StepCost {
        let mut cost = StepCost::default();
        for step in 0..100 {
            let tokens = 1 + step % 5;
            cost.learn(tokens, 0, base + token * tokens as f64);
        }
        cost.num_guessed = NUM_TRIALS;
        cost
    }

    #[test]
    fn a_line_is_measured() {
        let (base, draw) = measured(900.0, 30.0).steps.base_and_draw();
        assert!((base - 900.0).abs() < 3.0 && (draw - 30.0).abs() < 1.0, "{base} {draw}");
    }

    #[test]
    fn prompts_in_the_steps_do_not_hide_the_cost_of_a_draw() {
        let mut cost = StepCost::default();
        for step in 0..400_usize {
            let (draws, others) = (28 + step % 5, [0, 40, 300, 90][step * 7 % 4]);
            // Times vary by a twentieth.
            let noise = 0.95 + 0.1 * (step * 37 % 101) as f64 / 100.0;
            cost.learn(draws, others, noise * (900.0 + 30.0 * draws as f64 + 12.0 * others as f64));
        }
        let (base, draw) = cost.steps.base_and_draw();
        assert!((base - 900.0).abs() < 100.0 && (draw - 30.0).abs() < 3.0, "{base} {draw}");
        let even = cost.break_even_made(32) / MARGIN;
        assert!((even - 960.0 / 1860.0).abs() < 0.05, "{even}");
    }

    #[test]
    fn steps_of_one_size_show_no_slope() {
        let mut cost = StepCost::default();
        (0..50).for_each(|_| cost.learn(1, 0, 900.0));
        let (base, draw) = cost.steps.base_and_draw();
        assert!((base - 800.0).abs() < 1e-6 && (draw - 100.0).abs() < 1e-6, "{base} {draw}");
    }

    #[test]
    fn the_first_guesses_are_tried_whatever_they_cost() {
        let mut cost = StepCost::default();
        for _ in 0..NUM_TRIALS {
            assert_eq!(cost.break_even(TRIAL_REQUESTS), 0.0);
            cost.learn(1, 0, 10.0);
            cost.learn_guesses(1, 1_000.0);
        }
        assert!(cost.break_even(TRIAL_REQUESTS) > 1.0);
    }

    #[test]
    fn a_drafter_without_guesses_is_not_tried_for_ever() {
        let mut cost = measured(900.0, 30.0);
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
        let cost = StepCost { num_guessed: 0, ..measured(900.0, 30.0) };
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
    fn a_guess_is_dearer_in_a_full_batch() {
        let cost = measured(900.0, 30.0);
        assert!(cost.break_even(1) < 0.05, "{}", cost.break_even(1));
        assert!((cost.break_even(32) - MARGIN * 960.0 / 1860.0).abs() < 0.01);
        assert!(measured(0.0, 30.0).break_even(4) > 1.0, "a device that is busy with one token");
    }

    #[test]
    fn guesses_that_are_computed_again_are_dearer() {
        let cost = measured(900.0, 30.0);
        let again = StepCost { is_repeated: true, ..cost.clone() };
        for num_requests in [1, 8, 32] {
            // The probability that is even without the margin.
            let p = again.break_even(num_requests) / MARGIN;
            let n = num_requests as f64;
            let (gain, step) = (p / (30.0 + p * 30.0), n / (900.0 + 30.0 * n));
            assert!((gain / step - 1.0).abs() < 0.01, "{num_requests}: {gain} {step}");
            assert!(again.break_even(num_requests) > cost.break_even(num_requests));
        }
        let busy = StepCost { is_repeated: true, ..measured(0.0, 30.0) };
        assert!(busy.break_even(4) > 1.0);
    }

    #[test]
    fn guesses_that_take_time_to_make_are_dearer() {
        let mut cost = measured(900.0, 30.0);
        let before = cost.break_even(1);
        (0..20).for_each(|_| cost.learn_guesses(4, 400.0));
        assert!(cost.break_even(1) > 2.0 * before);
        assert_eq!(cost.break_even_made(1), before);
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
                    *tries += shared.num_wanted(&Acceptance::default(), 0.5, num_requests, 8);
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
