//! The measured time of steps and of guesses, by which [`pace`](super::pace) decides.

/// How fast old measurements of steps lose weight.
const STEP_DECAY: f64 = 0.99;
/// Time of one more token, as a share of a step's base, until it is measured.
const DEFAULT_TOKEN_SHARE: f64 = 1.0 / 8.0;
/// Variance of the numbers of tokens that the assumed time of a token is worth.
const PRIOR_VARIANCE: f64 = 0.002_5;
/// A guess must be this much better than even, because the numbers are estimates.
const MARGIN: f64 = 1.1;
/// Weights of a new measurement of the time to make guesses, if it is longer and if it is shorter.
/// Other work makes times longer, and nothing makes them shorter. The first guesses take longest.
const GUESS_WEIGHTS: (f64, f64) = (0.1, 0.5);
/// A time counts as at most so many times the expected one. Where a step takes less than a
/// millisecond, the system's other work makes some a hundred times as long.
const OUTLIER_TIMES: f64 = 4.0;
/// Number of first steps with guesses that have as many as possible, to measure their cost.
pub(super) const NUM_TRIALS: u32 = 16;
/// Largest number of requests in such a step.
pub(super) const TRIAL_REQUESTS: usize = 4;

/// The time of steps by their numbers of draws and of other tokens: a plane through recent steps.
#[derive(Debug, Clone, Default)]
pub struct StepCost {
    steps: StepSums,
    /// Time to make one guess, in microseconds.
    guess: f64,
    /// Number of steps for which guesses were wanted.
    pub(super) num_guessed: u32,
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

    /// Returns the time of a step without tokens, of one more draw, and of one more of the other
    /// tokens: least squares.
    fn plane(&self) -> Plane {
        let weight = self.weight;
        if weight == 0.0 {
            return Plane { base: 1.0, draw: DEFAULT_TOKEN_SHARE, other: DEFAULT_TOKEN_SHARE };
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
        Plane { base: (time - draw * draws - other * others).max(0.0), draw, other }
    }
}

/// The parts of a step's time, in microseconds.
#[derive(Debug, Clone, Copy)]
struct Plane {
    base: f64,
    draw: f64,
    other: f64,
}

impl StepCost {
    /// Returns the costs of a model. `is_repeated` says whether it computes right guesses again.
    #[must_use]
    pub fn new(is_repeated: bool) -> Self {
        Self { is_repeated, ..Self::default() }
    }

    /// Learns the time of a step in microseconds. It drew tokens at `num_draws` places, and
    /// computed `num_others` more tokens. A step without tokens, which only ends requests, says
    /// nothing: its time would show that all of the others' is their tokens'.
    pub fn learn(&mut self, num_draws: usize, num_others: usize, micros: f64) {
        if num_draws + num_others == 0 {
            return;
        }
        let most = match self.steps.weight {
            0.0 => f64::INFINITY,
            _ => {
                let Plane { base, draw, other } = self.steps.plane();
                OUTLIER_TIMES * (base + draw * num_draws as f64 + other * num_others as f64)
            }
        };
        self.steps.add(num_draws, num_others, micros.min(most));
    }

    /// Learns the time to make guesses, in microseconds, without those that had to wait until a
    /// text was read. A step whose drafter had none counts as a step with guesses, because
    /// otherwise a drafter without guesses would be tried for ever.
    pub fn learn_guesses(&mut self, num_guesses: usize, micros: f64) {
        self.num_guessed = self.num_guessed.saturating_add(1);
        if num_guesses > 0 {
            let each = micros / num_guesses as f64;
            self.guess = match self.guess {
                0.0 => each,
                guess if each < guess => guess + GUESS_WEIGHTS.1 * (each - guess),
                guess => guess + GUESS_WEIGHTS.0 * (each.min(OUTLIER_TIMES * guess) - guess),
            };
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
        let Plane { base, draw, .. } = self.steps.plane();
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

#[cfg(test)]
impl StepCost {
    /// Returns the cost of a device whose steps take `base + token · tokens` microseconds.
    pub(super) fn measured(base: f64, token: f64) -> Self {
        let mut cost = Self::default();
        for step in 0..100 {
            let tokens = 1 + step % 5;
            cost.learn(tokens, 0, base + token * tokens as f64);
        }
        cost.num_guessed = NUM_TRIALS;
        cost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_measured() {
        let Plane { base, draw, .. } = StepCost::measured(900.0, 30.0).steps.plane();
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
        let Plane { base, draw, .. } = cost.steps.plane();
        assert!((base - 900.0).abs() < 100.0 && (draw - 30.0).abs() < 3.0, "{base} {draw}");
        let even = cost.break_even_made(32) / MARGIN;
        assert!((even - 960.0 / 1860.0).abs() < 0.05, "{even}");
    }

    #[test]
    fn steps_of_one_size_show_no_slope() {
        let mut cost = StepCost::default();
        (0..50).for_each(|_| cost.learn(1, 0, 900.0));
        let Plane { base, draw, .. } = cost.steps.plane();
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
    fn a_guess_is_dearer_in_a_full_batch() {
        let cost = StepCost::measured(900.0, 30.0);
        assert!(cost.break_even(1) < 0.05, "{}", cost.break_even(1));
        assert!((cost.break_even(32) - MARGIN * 960.0 / 1860.0).abs() < 0.01);
        assert!(
            StepCost::measured(0.0, 30.0).break_even(4) > 1.0,
            "a device that is busy with one token"
        );
    }

    #[test]
    fn guesses_that_are_computed_again_are_dearer() {
        let cost = StepCost::measured(900.0, 30.0);
        let again = StepCost { is_repeated: true, ..cost.clone() };
        for num_requests in [1, 8, 32] {
            // The probability that is even without the margin.
            let p = again.break_even(num_requests) / MARGIN;
            let n = num_requests as f64;
            let (gain, step) = (p / (30.0 + p * 30.0), n / (900.0 + 30.0 * n));
            assert!((gain / step - 1.0).abs() < 0.01, "{num_requests}: {gain} {step}");
            assert!(again.break_even(num_requests) > cost.break_even(num_requests));
        }
        let busy = StepCost { is_repeated: true, ..StepCost::measured(0.0, 30.0) };
        assert!(busy.break_even(4) > 1.0);
    }

    #[test]
    fn guesses_that_take_time_to_make_are_dearer() {
        let mut cost = StepCost::measured(900.0, 30.0);
        let before = cost.break_even(1);
        (0..20).for_each(|_| cost.learn_guesses(4, 400.0));
        assert!(cost.break_even(1) > 2.0 * before);
        assert_eq!(cost.break_even_made(1), before);
    }

    #[test]
    fn steps_without_tokens_say_nothing() {
        let (mut cost, before) = (StepCost::measured(900.0, 30.0), StepCost::measured(900.0, 30.0));
        (0..100).for_each(|_| cost.learn(0, 0, 5.0));
        assert_eq!(cost.break_even_made(1), before.break_even_made(1));
    }

    #[test]
    fn one_slow_step_or_guess_does_not_end_the_guesses() {
        let mut cost = StepCost::measured(300.0, 10.0);
        (0..40).for_each(|_| cost.learn_guesses(4, 200.0));
        let before = cost.break_even(1);
        cost.learn(5, 0, 30_000.0);
        cost.learn_guesses(4, 30_000.0);
        assert!(cost.break_even(1) < 2.0 * before, "{before} {}", cost.break_even(1));
        // A change that stays is learned.
        (0..40).for_each(|_| cost.learn_guesses(4, 4_000.0));
        assert!(cost.break_even(1) > 1.0);
    }
}
