//! The numbers of messages along each edge. Messages are counted where they are handled. This
//! includes messages that pass no slot: those of device threads and timers.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::message::Edge;

/// One counter for each edge.
#[derive(Debug, Default)]
pub struct EdgeCounts {
    counts: [AtomicU64; Edge::ALL.len()],
}

impl EdgeCounts {
    /// Counts a message that is being handled.
    pub fn count(&self, edge: Edge) {
        if let Some(count) = self.counts.get(edge.number()) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the numbers of messages handled so far.
    pub fn all(&self) -> Vec<(Edge, u64)> {
        let count = |edge: Edge| {
            let count = self.counts.get(edge.number());
            (edge, count.map_or(0, |count| count.load(Ordering::Relaxed)))
        };
        Edge::ALL.into_iter().map(count).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_edge_has_a_counter_of_its_own() {
        let counts = EdgeCounts::default();
        for (times, edge) in (1..).zip(Edge::ALL) {
            (0..times).for_each(|_| counts.count(edge));
        }
        let expected: Vec<_> = Edge::ALL.into_iter().zip(1..).collect();
        assert_eq!(counts.all(), expected);
    }
}
