//! Counts the device threads that were left behind, and limits their number. Each may hold the
//! memory of its step and a KV cache until the thread ends. If many threads hang, one more thread
//! would not make the engine work.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{sync::Notify, time::timeout};

use super::watched::waiting_for;

/// Largest number of device threads that their worker has left and that have not ended.
const MOST: usize = 8;

const HELD: u8 = 0;
const LEFT: u8 = 1;
const ENDED: u8 = 2;

/// The number of threads that were left behind and have not ended.
#[derive(Debug, Clone, Default)]
pub(crate) struct LeftBehind(Arc<Left>);

#[derive(Debug, Default)]
struct Left {
    count: AtomicUsize,
    /// A thread that was left behind has ended.
    ended: Notify,
}

/// The state that a worker and its thread share: the worker has left, or the thread has ended.
#[derive(Debug)]
struct Tie {
    state: AtomicU8,
    left: LeftBehind,
}

/// The worker's end. The worker drops it when it leaves the thread behind.
#[derive(Debug)]
pub(crate) struct Holder(Arc<Tie>);

/// The thread's end. The thread drops it when it ends.
#[derive(Debug)]
pub(crate) struct Held(Arc<Tie>);

impl LeftBehind {
    /// Ties a new thread to its worker. If as many threads as allowed were left behind, this first
    /// waits until one has ended, and for `limit` at most. On a busy machine, threads that do not
    /// hang end late: they lack a processor, or wait for the step of another one.
    ///
    /// # Errors
    /// When there are still as many after `limit`.
    pub(crate) async fn tie(&self, limit: Duration) -> std::io::Result<(Holder, Held)> {
        match waiting_for(timeout(limit, self.tie_when_there_is_room())).await {
            Ok(ends) => Ok(ends),
            // Without room, the tie fails and says why.
            Err(_) => self.tie_now(),
        }
    }

    fn tie_now(&self) -> std::io::Result<(Holder, Held)> {
        let num_left = self.0.count.load(Ordering::Acquire);
        if num_left >= MOST {
            let why = format!("{num_left} device threads hang and were left behind already");
            return Err(std::io::Error::other(why));
        }
        let tie = Arc::new(Tie { state: AtomicU8::new(HELD), left: self.clone() });
        Ok((Holder(Arc::clone(&tie)), Held(tie)))
    }

    /// Waits until a thread may be tied, and ties it.
    async fn tie_when_there_is_room(&self) -> (Holder, Held) {
        loop {
            // Before the try, so that no end is missed.
            let mut ended = pin!(self.0.ended.notified());
            ended.as_mut().enable();
            // Another thread may be left behind in any moment, so each try may fail.
            if let Ok(ends) = self.tie_now() {
                return ends;
            }
            ended.await;
        }
    }
}

impl Left {
    fn one_has_ended(&self) {
        self.count.fetch_sub(1, Ordering::AcqRel);
        self.ended.notify_waiters();
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let Tie { state, left } = &*self.0;
        // The thread is counted before it is marked, because the end of a marked thread reduces the
        // count.
        left.0.count.fetch_add(1, Ordering::AcqRel);
        if state.swap(LEFT, Ordering::AcqRel) == ENDED {
            left.0.one_has_ended();
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let Tie { state, left } = &*self.0;
        if state.swap(ENDED, Ordering::AcqRel) == LEFT {
            left.0.one_has_ended();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_further_thread_is_rejected_until_one_has_ended() {
        let left = LeftBehind::default();
        let mut hung: Vec<_> = (0..MOST).map(|_| left.tie_now().unwrap().1).collect();
        assert!(left.tie_now().is_err());
        hung.pop();
        let (holder, held) = left.tie_now().unwrap();
        drop(held);
        drop(holder);
        assert!(left.tie_now().is_ok(), "a thread that ended before is not counted");
    }

    #[tokio::test(start_paused = true)]
    async fn a_start_waits_for_the_end_of_a_thread_but_not_for_ever() {
        const LIMIT: Duration = Duration::from_secs(2);
        let left = LeftBehind::default();
        let mut late: Vec<_> = (0..MOST).map(|_| left.tie_now().unwrap().1).collect();
        let began = tokio::time::Instant::now();
        assert!(left.tie(LIMIT).await.is_err(), "all hang");
        assert!(began.elapsed() >= LIMIT);
        let (one, waiting) = (late.pop(), left.clone());
        let tie = tokio::spawn(async move { waiting.tie(LIMIT).await.is_ok() });
        tokio::time::sleep(LIMIT / 2).await;
        assert!(!tie.is_finished());
        drop(one);
        let began = tokio::time::Instant::now();
        assert!(tie.await.unwrap());
        assert_eq!(began.elapsed(), Duration::ZERO);
    }
}
