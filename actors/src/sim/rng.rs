//! Random choices that are a function of a seed: SplitMix64.

/// A sequence of choices.
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// Returns the sequence of `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(mix(seed ^ 0x5_eed0_fa11_0f17))
    }

    /// Returns a separate sequence for one purpose. So a further choice in one place does not
    /// change the others.
    #[must_use]
    pub fn fork(&self, purpose: u64) -> Self {
        Self(mix(self.0 ^ mix(purpose)))
    }

    /// Returns any number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        finalise(self.0)
    }

    /// Returns a number below `bound`, or 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next_u64() % bound.max(1)
    }

    /// Returns a number in `low..=high`.
    pub fn within(&mut self, low: usize, high: usize) -> usize {
        low + self.below((high.saturating_sub(low) + 1) as u64) as usize
    }

    /// Returns true in `percent` of a hundred cases.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Returns one of `choices`, which must not be empty.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}

/// Returns a bijection of `value` without visible structure.
pub(super) fn mix(value: u64) -> u64 {
    finalise(value.wrapping_add(0x9e37_79b9_7f4a_7c15))
}

fn finalise(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
