//! A bucket of tokens for one tenant: full at first, refilled steadily, emptied by requests.

use crate::logic::request::ids::Micros;

/// Units per token: the microseconds of a minute. So a bucket of `n` tokens a minute gains exactly
/// `n` units a microsecond, and rounding loses nothing.
const UNITS_PER_TOKEN: i128 = 60_000_000;

/// The tokens that may be used within a minute. The bucket can be in debt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TokenBucket {
    tokens_per_minute: i128,
    level: i128,
    updated_at: Micros,
}

impl TokenBucket {
    /// Returns a full bucket. A rate of 0 is taken as 1, because otherwise a debt would stay for
    /// ever.
    pub(super) fn full(tokens_per_minute: u64, now: Micros) -> Self {
        let tokens_per_minute = i128::from(tokens_per_minute.max(1));
        let level = tokens_per_minute * UNITS_PER_TOKEN;
        Self { tokens_per_minute, level, updated_at: now }
    }

    /// Returns the time until `tokens` can be charged, in microseconds; 0 means now. More tokens
    /// than the bucket holds wait only until it is full, because otherwise they could never be
    /// served.
    pub(super) fn wait(&self, now: Micros, tokens: u64) -> Micros {
        let needed = (i128::from(tokens) * UNITS_PER_TOKEN).min(self.capacity());
        let missing = (needed - self.level_at(now)).max(0);
        let wait = (missing + self.tokens_per_minute - 1) / self.tokens_per_minute;
        Micros::try_from(wait).unwrap_or(Micros::MAX)
    }

    /// Takes tokens out, into debt if necessary.
    pub(super) fn charge(&mut self, now: Micros, tokens: u64) {
        self.level = self.level_at(now) - i128::from(tokens) * UNITS_PER_TOKEN;
        self.updated_at = self.updated_at.max(now);
    }

    /// Refunds tokens that were charged and not used.
    pub(super) fn give_back(&mut self, now: Micros, tokens: u64) {
        let level = self.level_at(now) + i128::from(tokens) * UNITS_PER_TOKEN;
        self.level = level.min(self.capacity());
        self.updated_at = self.updated_at.max(now);
    }

    /// Returns the whole tokens in the bucket. A negative number is the debt.
    pub(super) fn tokens(&self, now: Micros) -> i64 {
        let tokens = self.level_at(now).div_euclid(UNITS_PER_TOKEN);
        i64::try_from(tokens).unwrap_or(if tokens < 0 { i64::MIN } else { i64::MAX })
    }

    fn capacity(&self) -> i128 {
        self.tokens_per_minute * UNITS_PER_TOKEN
    }

    fn level_at(&self, now: Micros) -> i128 {
        let elapsed = i128::from(now.saturating_sub(self.updated_at));
        let gained = elapsed.saturating_mul(self.tokens_per_minute);
        self.level.saturating_add(gained).min(self.capacity())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Micros = 1_000_000;

    #[test]
    fn it_is_full_at_first_and_refills_evenly() {
        let mut bucket = TokenBucket::full(60, 0);
        assert_eq!(bucket.wait(0, 60), 0);
        bucket.charge(0, 60);
        assert_eq!(bucket.wait(0, 3), 3 * SECOND);
        assert_eq!(bucket.wait(2 * SECOND, 3), SECOND);
        assert_eq!(bucket.tokens(2 * SECOND), 2);
        assert_eq!(bucket.tokens(500 * SECOND), 60, "no more than a minute's worth");
    }

    #[test]
    fn more_than_the_bucket_holds_waits_for_a_full_one_and_leaves_a_debt() {
        let mut bucket = TokenBucket::full(60, 0);
        bucket.charge(0, 1);
        assert_eq!(bucket.wait(0, 1_000), SECOND);
        bucket.charge(SECOND, 1_000);
        assert_eq!(bucket.tokens(SECOND), -940);
        assert_eq!(bucket.wait(SECOND, 1), 941 * SECOND);
    }

    #[test]
    fn unused_tokens_are_refunded() {
        let mut bucket = TokenBucket::full(60, 0);
        bucket.charge(0, 40);
        bucket.give_back(0, 30);
        assert_eq!(bucket.tokens(0), 50);
        bucket.give_back(0, 30);
        assert_eq!(bucket.tokens(0), 60, "never more than it holds");
    }

    #[test]
    fn extremes_do_not_overflow() {
        let mut bucket = TokenBucket::full(u64::MAX, 0);
        bucket.charge(u64::MAX, u64::MAX);
        bucket.give_back(u64::MAX, u64::MAX);
        assert_eq!(bucket.wait(u64::MAX, u64::MAX), 0);
        let mut bucket = TokenBucket::full(0, 0);
        bucket.charge(0, u64::MAX);
        assert_eq!(bucket.wait(0, 1), Micros::MAX);
    }
}
