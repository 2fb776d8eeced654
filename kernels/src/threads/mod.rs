//! Work on several threads, cut in pieces that depend only on the shape of the work.

mod affinity;
mod gate;
mod pool;
#[cfg(test)]
mod tests;

use std::marker::PhantomData;

use gate::Deal;
pub use pool::ThreadPool;

/// Least work for several threads, in multiply-adds. Below it, waking a thread costs more.
const PARALLEL_WORK_MIN: usize = 1 << 16;

/// Least work of maps for several threads, in elements.
const PARALLEL_ELEMENTS_MIN: usize = 1 << 16;

/// Returns the number of threads that an operation called here may use.
pub(crate) fn num_threads() -> usize {
    ThreadPool::current().num_threads()
}

/// Runs `task(piece)` for each of `pieces`, on several threads where `work` is large enough.
///
/// No result may depend on the thread that runs a piece. A panic of one continues in the caller,
/// after all threads have stopped work on the others.
pub(crate) fn for_each_piece(pieces: usize, work: usize, task: impl Fn(usize) + Sync) {
    deal(pieces, work, Deal::InTurn, task);
}

/// Runs the same where neighbouring pieces read neighbouring memory, once. Each thread then reads
/// one stretch of it.
pub(crate) fn for_each_piece_of_stream(pieces: usize, work: usize, task: impl Fn(usize) + Sync) {
    deal(pieces, work, Deal::Stretches, task);
}

fn deal(pieces: usize, work: usize, deal: Deal, task: impl Fn(usize) + Sync) {
    if pieces <= 1 || work < PARALLEL_WORK_MIN {
        (0..pieces).for_each(task);
    } else {
        ThreadPool::current().run(pieces, deal, &task);
    }
}

/// Runs `task(first_row, rows)` on pieces of whole rows of `data`, on several threads where there
/// is enough work.
pub(crate) fn for_each_rows<T: Send>(
    data: &mut [T],
    width: usize,
    task: impl Fn(usize, &mut [T]) + Sync,
) {
    const PIECE_ELEMENTS: usize = 1 << 14;
    if data.is_empty() {
        return;
    }
    let (len, rows) = (data.len(), (PIECE_ELEMENTS / width).max(1));
    if len < PARALLEL_ELEMENTS_MIN {
        return task(0, data);
    }
    let (piece_len, shared) = (rows * width, SharedMut::new(data));
    for_each_piece(len.div_ceil(piece_len), PARALLEL_WORK_MIN, |piece| {
        let start = piece * piece_len;
        // SAFETY: pieces are disjoint.
        let data = unsafe { shared.slice(start, piece_len.min(len - start)) };
        task(piece * rows, data);
    });
}

/// A slice that pieces of one operation share. Each piece writes where no other does.
pub(crate) struct SharedMut<'a, T> {
    ptr: *mut T,
    len: usize,
    borrow: PhantomData<&'a mut [T]>,
}

// SAFETY: every access goes through `slice` or `shared`, whose contracts exclude conflicts.
unsafe impl<T: Send> Send for SharedMut<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for SharedMut<'_, T> {}

impl<'a, T> SharedMut<'a, T> {
    /// Shares `data`.
    pub(crate) fn new(data: &'a mut [T]) -> Self {
        Self { ptr: data.as_mut_ptr(), len: data.len(), borrow: PhantomData }
    }

    /// Shares `start .. start + len` alone.
    ///
    /// # Panics
    /// If the slice has fewer elements.
    pub(crate) fn part(&self, start: usize, len: usize) -> Self {
        assert!(start.checked_add(len).is_some_and(|end| end <= self.len));
        // SAFETY: in bounds by the assertion. Accesses go through `slice` of either.
        Self { ptr: unsafe { self.ptr.add(start) }, len, borrow: PhantomData }
    }

    /// Returns the elements `start .. start + len`.
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

    /// Returns the elements `start .. start + len`, to be read.
    ///
    /// # Safety
    /// Nothing may write to the range while the reference lives.
    #[inline]
    pub(crate) unsafe fn shared(&self, start: usize, len: usize) -> &[T] {
        assert!(start.checked_add(len).is_some_and(|end| end <= self.len));
        // SAFETY: in bounds by the assertion; borrowed for `'a`; not written by the contract.
        unsafe { std::slice::from_raw_parts(self.ptr.add(start), len) }
    }
}
