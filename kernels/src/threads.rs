//! Work over threads, cut in pieces that depend only on the shape of the work.

use std::marker::PhantomData;

use rayon::prelude::*;

/// Work below this many multiply-adds runs where it is: waking a thread costs more.
const PARALLEL_WORK_MIN: usize = 1 << 18;

/// The same for maps, in elements.
const PARALLEL_ELEMENTS_MIN: usize = 1 << 16;

/// Runs `step` on one of the threads that the kernels compute on, and waits for it.
///
/// An operation called from any other thread sleeps until the compute threads have woken up and
/// answered, some 10 µs each time. Wrap a whole forward pass instead: within, operations hand work
/// over without sleeping.
pub fn on_compute_threads<R: Send>(step: impl FnOnce() -> R + Send) -> R {
    rayon::scope(|_| step())
}

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

/// Runs `task(first_row, rows)` on pieces of whole rows of `data`, over the threads where it is
/// worth it.
pub(crate) fn for_each_rows(
    data: &mut [f32],
    width: usize,
    task: impl Fn(usize, &mut [f32]) + Sync + Send,
) {
    const PIECE_ELEMENTS: usize = 1 << 14;
    if data.is_empty() {
        return;
    }
    let rows = (PIECE_ELEMENTS / width).max(1);
    if data.len() < PARALLEL_ELEMENTS_MIN {
        task(0, data);
    } else {
        data.par_chunks_mut(rows * width).enumerate().for_each(|(i, piece)| task(i * rows, piece));
    }
}

/// A slice that pieces of one operation share, each writing where no other does.
pub(crate) struct SharedMut<'a, T> {
    ptr: *mut T,
    len: usize,
    borrow: PhantomData<&'a mut [T]>,
}

// SAFETY: every access goes through `slice`, whose contract makes the ranges disjoint.
unsafe impl<T: Send> Send for SharedMut<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for SharedMut<'_, T> {}

impl<'a, T> SharedMut<'a, T> {
    /// Shares `data`.
    pub(crate) fn new(data: &'a mut [T]) -> Self {
        Self { ptr: data.as_mut_ptr(), len: data.len(), borrow: PhantomData }
    }

    /// Elements `start .. start + len`.
    ///
    /// # Safety
    /// No other live reference may overlap the range.
    #[allow(clippy::mut_from_ref)]
    #[inline]
    pub(crate) unsafe fn slice(&self, start: usize, len: usize) -> &mut [T] {
        assert!(start.checked_add(len).is_some_and(|end| end <= self.len));
        // SAFETY: in bounds by the assertion; borrowed for `'a`; unaliased by the contract.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.add(start), len) }
    }
}
