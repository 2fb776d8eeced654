//! Bytes of the copies of weights in a step. Some products lay their weights out anew, for as long
//! as the product takes. All steps share that memory, but a recording holds as much for itself.

use std::cell::RefCell;
use std::collections::BTreeSet;

thread_local! {
    /// Sizes in bytes: copies of one size take turns in the same memory.
    static COPIES: RefCell<BTreeSet<usize>> = const { RefCell::new(BTreeSet::new()) };
}

/// Records that a product on this thread takes a copy of `bytes` bytes.
pub(crate) fn note(bytes: usize) {
    COPIES.with_borrow_mut(|copies| copies.insert(bytes));
}

/// Runs `step`. Returns its result and the bytes of the copies that it takes.
pub(crate) fn noted<R>(step: impl FnOnce() -> R) -> (R, u64) {
    COPIES.take();
    let done = step();
    (done, COPIES.take().into_iter().map(|bytes| bytes as u64).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_one_size_are_one_and_those_of_the_step_before_are_none() {
        note(3);
        assert_eq!(noted(|| 1), (1, 0));
        assert_eq!(noted(|| [5, 7, 5].map(note)), ([(); 3], 12));
        assert_eq!(noted(|| 2), (2, 0));
    }
}
