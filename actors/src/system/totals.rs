//! Counts since the start that can be read. The handles of the metrics can only be written.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::logic::{
    ledger::CommitTiming,
    observe::{
        Latencies,
        latencies::{NUM_BUCKETS, bucket_of},
    },
    request::ids::Micros,
    scheduler::StepStats,
};

/// Growing counters. Each is exact. Together they are of about the same time.
#[derive(Debug, Default)]
pub struct Totals {
    steps: AtomicU64,
    scheduled_tokens: AtomicU64,
    prompt_tokens: AtomicU64,
    recomputed_tokens: AtomicU64,
    output_tokens: AtomicU64,
    prefix_cache_queries: AtomicU64,
    prefix_cache_hits: AtomicU64,
    preemptions: AtomicU64,
    finished_requests: AtomicU64,
    time_to_first_token: LatencyCounts,
    inter_token_latency: LatencyCounts,
}

/// [`Totals`] at one time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TotalsView {
    /// Steps with something to compute.
    pub steps: u64,
    /// Tokens of these steps.
    pub scheduled_tokens: u64,
    /// Prompt tokens among them that were computed for the first time.
    pub prompt_tokens: u64,
    /// Tokens among them that were computed again, after a preemption, a retry or a new epoch.
    pub recomputed_tokens: u64,
    /// Tokens that were committed.
    pub output_tokens: u64,
    /// Tokens looked up in the prefix cache.
    pub prefix_cache_queries: u64,
    /// Tokens found in the prefix cache.
    pub prefix_cache_hits: u64,
    /// Requests preempted.
    pub preemptions: u64,
    /// Requests that ended.
    pub finished_requests: u64,
    /// Time from acceptance to the first token.
    pub time_to_first_token: Latencies,
    /// Time from one token to the next.
    pub inter_token_latency: Latencies,
}

impl Totals {
    /// Counts a planned step.
    pub fn scheduled(&self, step: &StepStats) {
        let add = |counter: &AtomicU64, count: usize| {
            if count > 0 {
                counter.fetch_add(count as u64, Ordering::Relaxed);
            }
        };
        add(&self.steps, usize::from(step.num_scheduled_tokens > 0));
        add(&self.scheduled_tokens, step.num_scheduled_tokens);
        add(&self.prompt_tokens, step.prompt_tokens_computed);
        add(&self.recomputed_tokens, step.recomputed_tokens);
        add(&self.prefix_cache_queries, step.prefix_cache_queries);
        add(&self.prefix_cache_hits, step.prefix_cache_hits);
        add(&self.preemptions, step.preempted.len());
    }

    /// Counts committed tokens.
    pub fn committed(&self, num_tokens: usize, timing: &CommitTiming) {
        self.output_tokens.fetch_add(num_tokens as u64, Ordering::Relaxed);
        if let Some(waited) = timing.time_to_first_token {
            self.time_to_first_token.count(waited);
        }
        if let Some(waited) = timing.inter_token_latency {
            self.inter_token_latency.count(waited);
        }
    }

    /// Counts a request that ended.
    pub fn finished(&self) {
        self.finished_requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns all counts of this moment.
    pub fn view(&self) -> TotalsView {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        TotalsView {
            steps: read(&self.steps),
            scheduled_tokens: read(&self.scheduled_tokens),
            prompt_tokens: read(&self.prompt_tokens),
            recomputed_tokens: read(&self.recomputed_tokens),
            output_tokens: read(&self.output_tokens),
            prefix_cache_queries: read(&self.prefix_cache_queries),
            prefix_cache_hits: read(&self.prefix_cache_hits),
            preemptions: read(&self.preemptions),
            finished_requests: read(&self.finished_requests),
            time_to_first_token: self.time_to_first_token.view(),
            inter_token_latency: self.inter_token_latency.view(),
        }
    }
}

/// [`Latencies`] that several threads count.
struct LatencyCounts {
    counts: [AtomicU64; NUM_BUCKETS],
    sum: AtomicU64,
}

impl Default for LatencyCounts {
    fn default() -> Self {
        Self { counts: [const { AtomicU64::new(0) }; NUM_BUCKETS], sum: AtomicU64::new(0) }
    }
}

impl std::fmt::Debug for LatencyCounts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LatencyCounts").field("sum", &self.sum).finish_non_exhaustive()
    }
}

impl LatencyCounts {
    fn count(&self, micros: Micros) {
        if let Some(count) = self.counts.get(bucket_of(micros)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.sum.fetch_add(micros, Ordering::Relaxed);
    }

    fn view(&self) -> Latencies {
        let counts = self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        Latencies { counts, sum: self.sum.load(Ordering::Relaxed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logic::request::ids::RequestId;

    #[test]
    fn counts_are_read_back() {
        let totals = Totals::default();
        totals.scheduled(&StepStats {
            num_scheduled_tokens: 9,
            prompt_tokens_computed: 7,
            prefix_cache_queries: 12,
            prefix_cache_hits: 5,
            ..StepStats::default()
        });
        totals.scheduled(&StepStats {
            preempted: vec![RequestId(1), RequestId(1)],
            ..StepStats::default()
        });
        let first = CommitTiming { time_to_first_token: Some(1_500), ..CommitTiming::default() };
        totals.committed(1, &first);
        for waited in [200, 300, 1_000_000] {
            let inter_token_latency = Some(waited);
            totals.committed(1, &CommitTiming { inter_token_latency, ..CommitTiming::default() });
        }
        totals.finished();
        let view = totals.view();
        let expected = TotalsView {
            steps: 1,
            scheduled_tokens: 9,
            prompt_tokens: 7,
            output_tokens: 4,
            prefix_cache_queries: 12,
            prefix_cache_hits: 5,
            preemptions: 2,
            finished_requests: 1,
            time_to_first_token: view.time_to_first_token.clone(),
            inter_token_latency: view.inter_token_latency.clone(),
            ..TotalsView::default()
        };
        assert_eq!(view, expected);
        assert_eq!(view.time_to_first_token.mean(), Some(1_500.0));
        assert_eq!(
            (view.inter_token_latency.count(), view.inter_token_latency.sum),
            (3, 1_000_500)
        );
        let median = view.inter_token_latency.quantile(0.5).unwrap();
        assert!((280..=320).contains(&median), "{median}");
    }
}
