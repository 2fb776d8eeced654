//! The number of tokens that a step may compute, after the device's memory has run out.

/// Number of steps in a row that must succeed before the budget grows.
pub const STEPS_TO_GROW: u32 = 256;

/// The token budget. It halves when memory runs out, and doubles after many steps without a
/// failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepBudget {
    max_tokens: usize,
    tokens: usize,
    /// Steps that succeeded since the budget last changed.
    num_succeeded: u32,
}

impl StepBudget {
    /// Returns the whole budget: `max_num_batched_tokens`, at least 1.
    #[must_use]
    pub fn new(max_num_batched_tokens: usize) -> Self {
        let max_tokens = max_num_batched_tokens.max(1);
        Self { max_tokens, tokens: max_tokens, num_succeeded: 0 }
    }

    /// Returns the maximum number of tokens of the next step, at least 1.
    #[must_use]
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// Halves the tokens of the next step, because one ran out of memory. Returns false if it has
    /// only one token, because then there is no smaller step.
    pub fn out_of_memory(&mut self) -> bool {
        self.num_succeeded = 0;
        let can_shrink = self.tokens > 1;
        self.tokens = (self.tokens / 2).max(1);
        can_shrink
    }

    /// Records that a step was computed. After every [`STEPS_TO_GROW`] of them the budget doubles,
    /// up to the whole.
    pub fn step_succeeded(&mut self) {
        if self.tokens == self.max_tokens {
            return;
        }
        self.num_succeeded += 1;
        if self.num_succeeded >= STEPS_TO_GROW {
            self.num_succeeded = 0;
            self.tokens = self.tokens.saturating_mul(2).min(self.max_tokens);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn succeed(budget: &mut StepBudget, times: u32) -> usize {
        (0..times).for_each(|_| budget.step_succeeded());
        budget.tokens()
    }

    #[test]
    fn it_halves_down_to_one_token() {
        let mut budget = StepBudget::new(5);
        assert!(budget.out_of_memory());
        assert_eq!(budget.tokens(), 2);
        assert!(budget.out_of_memory());
        assert_eq!(budget.tokens(), 1);
        assert!(!budget.out_of_memory(), "nothing smaller can be tried");
        assert_eq!(budget.tokens(), 1);
    }

    #[test]
    fn it_doubles_back_after_256_steps_each() {
        let mut budget = StepBudget::new(100);
        budget.out_of_memory();
        budget.out_of_memory();
        assert_eq!(succeed(&mut budget, 255), 25);
        assert_eq!(succeed(&mut budget, 1), 50);
        assert_eq!(succeed(&mut budget, 256), 100);
        assert_eq!(succeed(&mut budget, 1_000), 100);
    }

    #[test]
    fn a_failure_begins_the_count_again() {
        let mut budget = StepBudget::new(100);
        budget.out_of_memory();
        succeed(&mut budget, 255);
        budget.out_of_memory();
        assert_eq!(succeed(&mut budget, 255), 25);
    }

    proptest! {
        #[test]
        fn it_stays_within_its_bounds(max in 0..5_000usize, events in prop::collection::vec(any::<Option<u16>>(), 0..50)) {
            let mut budget = StepBudget::new(max);
            for event in events {
                match event {
                    None => {
                        let before = budget.tokens();
                        prop_assert_eq!(budget.out_of_memory(), budget.tokens() < before);
                    }
                    Some(steps) => {
                        succeed(&mut budget, u32::from(steps % 600));
                    }
                }
                prop_assert!((1..=max.max(1)).contains(&budget.tokens()));
            }
        }
    }
}
