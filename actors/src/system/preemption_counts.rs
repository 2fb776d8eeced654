//! How often each live request was preempted.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::logic::request::ids::RequestId;

/// Counts of the requests that were preempted at least once.
#[derive(Debug, Default)]
pub(super) struct PreemptionCounts(Mutex<BTreeMap<RequestId, u32>>);

impl PreemptionCounts {
    /// Counts the preemptions of a step.
    pub(super) fn count(&self, preempted: &[RequestId]) {
        if preempted.is_empty() {
            return;
        }
        let mut counts = self.0.lock();
        for &request in preempted {
            *counts.entry(request).or_default() += 1;
        }
    }

    /// Returns the count of a request that ends. There are `num_open` requests, and `is_live` says
    /// which are live. A step may preempt a request after its end, and a request may end in another
    /// engine. So counts of requests that are not live are forgotten when there are too many.
    pub(super) fn take(
        &self,
        request: RequestId,
        num_open: usize,
        is_live: impl Fn(RequestId) -> bool,
    ) -> u32 {
        let mut counts = self.0.lock();
        let count = counts.remove(&request).unwrap_or(0);
        if counts.len() > num_open {
            counts.retain(|&request, _| is_live(request));
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_ended_elsewhere_are_not_counted_for_ever() {
        let counts = PreemptionCounts::default();
        counts.count(&[RequestId(1), RequestId(2), RequestId(1)]);
        assert_eq!(counts.take(RequestId(1), 2, |_| true), 2);
        assert_eq!(counts.take(RequestId(1), 1, |_| true), 0);
        counts.count(&(10..100).map(RequestId).collect::<Vec<_>>());
        assert_eq!(counts.take(RequestId(3), 2, |request| request == RequestId(2)), 0);
        assert_eq!(counts.0.lock().len(), 1);
        assert_eq!(counts.take(RequestId(2), 1, |_| false), 1);
    }
}
