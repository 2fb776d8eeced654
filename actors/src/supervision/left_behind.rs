//! Counts the device threads that were left behind, and limits their number. Each may hold the memory
//! of its step and a KV cache, and neither is free before the thread ends. With too many of them,
//! one more thread would not make the engine work.

use std::sync::{
    Arc,
    atomic::{AtomicU8, AtomicUsize, Ordering},
};

/// Device threads at most whose worker has left, and that have not ended.
const MOST: usize = 8;

const HELD: u8 = 0;
const LEFT: u8 = 1;
const ENDED: u8 = 2;

/// Counts the threads that were left behind and have not ended.
#[derive(Debug, Clone, Default)]
pub(crate) struct LeftBehind(Arc<AtomicUsize>);

/// What a worker and its thread share: whether the one has left, and the other has ended.
#[derive(Debug)]
struct Tie {
    state: AtomicU8,
    left: LeftBehind,
}

/// The worker's end: dropped when it leaves the thread to itself.
#[derive(Debug)]
pub(crate) struct Holder(Arc<Tie>);

/// The thread's end: dropped when the thread ends.
#[derive(Debug)]
pub(crate) struct Held(Arc<Tie>);

impl LeftBehind {
    /// Ties a thread to its worker.
    ///
    /// # Errors
    /// When as many as may be were left behind already.
    pub(crate) fn tie(&self) -> std::io::Result<(Holder, Held)> {
        let num_left = self.0.load(Ordering::Acquire);
        if num_left >= MOST {
            let why = format!("{num_left} device threads hang and were left behind already");
            return Err(std::io::Error::other(why));
        }
        let tie = Arc::new(Tie { state: AtomicU8::new(HELD), left: self.clone() });
        Ok((Holder(Arc::clone(&tie)), Held(tie)))
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let Tie { state, left } = &*self.0;
        // First counted, then known to be: its end takes back what was counted.
        left.0.fetch_add(1, Ordering::AcqRel);
        if state.swap(LEFT, Ordering::AcqRel) == ENDED {
            left.0.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let Tie { state, left } = &*self.0;
        if state.swap(ENDED, Ordering::AcqRel) == LEFT {
            left.0.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_further_thread_is_refused_until_one_has_ended() {
        let left = LeftBehind::default();
        let mut hung: Vec<_> = (0..MOST).map(|_| left.tie().unwrap().1).collect();
        assert!(left.tie().is_err());
        hung.pop();
        let (holder, held) = left.tie().unwrap();
        drop(held);
        drop(holder);
        assert!(left.tie().is_ok(), "one that ended before its worker left counts for nothing");
    }
}
