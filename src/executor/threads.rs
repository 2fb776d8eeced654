//! The threads that an engine computes on.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use playhouse_kernels::on_compute_threads;
use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};

/// The process's common threads, or some that belong to one engine. Clones share them.
#[derive(Debug, Clone, Default)]
pub(super) struct ComputeThreads {
    /// `None`: the common ones.
    pool: Option<Arc<ThreadPool>>,
    /// Computations of this engine that have not ended.
    running: Arc<AtomicUsize>,
}

impl ComputeThreads {
    /// `count` threads of their own.
    ///
    /// # Errors
    /// When the system does not give that many.
    pub(super) fn own(count: usize) -> Result<Self, ThreadPoolBuildError> {
        let name = |index| format!("playhouse-compute-{index}");
        let pool = ThreadPoolBuilder::new().num_threads(count).thread_name(name).build()?;
        Ok(Self { pool: Some(Arc::new(pool)), running: Arc::default() })
    }

    /// Runs `work` on them and waits for it: whatever a kernel spreads out stays within them. A
    /// panic goes on in the caller, once no thread works on it any more.
    ///
    /// Locks are to be taken before: a thread that waits for a part of its work takes up others.
    pub(super) fn run<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        let _running = Running::enter(&self.running);
        match &self.pool {
            Some(pool) => pool.install(work),
            None => on_compute_threads(work),
        }
    }

    /// Threads for who comes after an abandoned computation: these if all is quiet, else as many
    /// others, since one that hangs does not give its thread back.
    ///
    /// # Errors
    /// As [`ComputeThreads::own`].
    pub(super) fn unoccupied(&self) -> Result<Self, ThreadPoolBuildError> {
        if self.running.load(Ordering::Acquire) == 0 {
            return Ok(self.clone());
        }
        let count = match &self.pool {
            Some(pool) => pool.current_num_threads(),
            None => rayon::current_num_threads(),
        };
        Self::own(count)
    }
}

/// Counts a computation until it ends, also by a panic.
struct Running<'a>(&'a AtomicUsize);

impl<'a> Running<'a> {
    fn enter(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(count)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn work_sees_its_own_threads_only() {
        let threads = ComputeThreads::own(3).unwrap();
        assert_eq!(threads.run(rayon::current_num_threads), 3);
    }

    #[test]
    fn occupied_threads_are_not_passed_on() {
        for threads in [ComputeThreads::own(1).unwrap(), ComputeThreads::default()] {
            let others = threads.run(|| threads.unoccupied().unwrap());
            assert!(!Arc::ptr_eq(&threads.running, &others.running));
            assert_eq!(
                others.run(rayon::current_num_threads),
                threads.run(rayon::current_num_threads)
            );
            let panicked = catch_unwind(AssertUnwindSafe(|| threads.run(|| panic!("on purpose"))));
            assert!(panicked.is_err());
            let same = threads.unoccupied().unwrap();
            assert!(Arc::ptr_eq(&threads.running, &same.running), "a panic occupies nothing");
        }
    }
}
