//! Work over threads, cut in pieces that depend only on the shape of the work.

use rayon::prelude::*;

/// Work below this many multiply-adds (or element visits) runs where it is: waking a thread costs
/// more.
pub(crate) const PARALLEL_WORK_MIN: usize = 1 << 16;

/// Runs `task(piece)` for each of `pieces`, over the threads where `work` is worth it.
///
/// No result may depend on which thread runs a piece.
pub(crate) fn for_each_piece(pieces: usize, work: usize, task: impl Fn(usize) + Sync + Send) {
    if pieces <= 1 || work < PARALLEL_WORK_MIN || rayon::current_num_threads() == 1 {
        (0..pieces).for_each(task);
    } else {
        (0..pieces).into_par_iter().with_max_len(1).for_each(task);
    }
}

/// A pointer that pieces of one operation may share, each writing where no other does.
pub(crate) struct SharedMut<T>(*mut T, usize);

// SAFETY: every use goes through `slice`, whose contract makes the ranges disjoint.
unsafe impl<T: Send> Send for SharedMut<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for SharedMut<T> {}

impl<T> SharedMut<T> {
    /// Shares `data` for as long as the caller keeps it borrowed.
    pub(crate) fn new(data: &mut [T]) -> Self {
        Self(data.as_mut_ptr(), data.len())
    }

    /// Elements `start .. start + len`.
    ///
    /// # Safety
    /// The slice given to `new` must still be borrowed, and no other live reference may overlap
    /// the range.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn slice(&self, start: usize, len: usize) -> &mut [T] {
        assert!(start.checked_add(len).is_some_and(|end| end <= self.1));
        // SAFETY: in bounds by the assertion; alive and unaliased by the contract.
        unsafe { std::slice::from_raw_parts_mut(self.0.add(start), len) }
    }
}
