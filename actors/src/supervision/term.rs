//! Terms of supervisors. A supervisor that hangs and was abandoned may go on after its successor
//! has started. Its term is over by then, so it starts no child, and its children take no slot.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// The terms of the supervisors that one place of the tree has, one after the other.
#[derive(Debug, Clone, Default)]
pub(crate) struct Terms(Arc<AtomicU64>);

/// The term of one supervisor. It ends when that of its successor begins. The default is the term
/// of a supervisor that has no successor.
#[derive(Debug, Clone, Default)]
pub struct Term {
    number: u64,
    latest: Arc<AtomicU64>,
}

impl Terms {
    /// Begins a term, and ends the one before.
    pub(crate) fn begin(&self) -> Term {
        let number = self.0.fetch_add(1, Ordering::AcqRel) + 1;
        Term { number, latest: Arc::clone(&self.0) }
    }
}

impl Term {
    /// Returns whether a successor's term has begun.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.latest.load(Ordering::Acquire) > self.number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_term_ends_when_the_next_one_begins() {
        let terms = Terms::default();
        let first = terms.begin();
        assert!(!first.is_over());
        let second = terms.begin();
        assert!(first.is_over());
        assert!(!second.is_over());
        assert!(!Terms::default().begin().is_over(), "each place has its own");
        assert!(!Term::default().is_over());
    }
}
