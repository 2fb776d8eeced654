//! The threads that an engine computes on, and the queue of its device.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use playhouse_kernels::{DeviceStream, ThreadPool};

/// The process's common threads, or threads of one engine. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct ComputeThreads {
    pool: ThreadPool,
    /// The queue to which they submit work for a GPU.
    stream: DeviceStream,
    /// Whether threads that replace these are bound to cores.
    pin: bool,
    /// Computations of this engine that have not ended.
    running: Arc<AtomicUsize>,
}

impl ComputeThreads {
    /// Returns the common threads.
    ///
    /// # Errors
    /// As [`ComputeThreads::own`].
    pub(crate) fn common() -> io::Result<Self> {
        Ok(Self::on(ThreadPool::try_common()?, false))
    }

    /// Returns `count` new threads, each bound to a core if `pin` and the process has as many
    /// cores.
    ///
    /// # Errors
    /// When the system cannot start that many.
    pub(crate) fn own(count: usize, pin: bool) -> io::Result<Self> {
        Ok(Self::on(ThreadPool::new(count, pin)?, pin))
    }

    fn on(pool: ThreadPool, pin: bool) -> Self {
        Self { pool, stream: DeviceStream::new(), pin, running: Arc::default() }
    }

    /// Runs `work` here, and the parallel parts of its kernels on these threads. A panic continues
    /// after all threads have ended their parts.
    pub(crate) fn run<R>(&self, work: impl FnOnce() -> R) -> R {
        let _running = Running::enter(&self.running);
        self.stream.run(|| self.pool.install(work))
    }

    /// Runs `work`, and submits its work for a device to the queue of the steps. So steps need no
    /// synchronization with another queue.
    pub(crate) fn on_queue<R>(&self, work: impl FnOnce() -> R) -> R {
        self.stream.run(work)
    }

    /// Returns the queue.
    pub(super) fn queue(&self) -> DeviceStream {
        self.stream
    }

    /// Returns threads for a runner that replaces an abandoned one. If no computation runs, they
    /// are these. If one runs, they are as many new threads, because a computation that hangs keeps
    /// its helpers.
    ///
    /// New threads submit to the same queue. Work that the abandoned runner left there may write
    /// the KV cache, which is kept. That work is done first.
    ///
    /// # Errors
    /// As [`ComputeThreads::own`].
    pub(super) fn unoccupied(&self) -> io::Result<Self> {
        if self.running.load(Ordering::Acquire) == 0 {
            return Ok(self.clone());
        }
        self.beside()
    }

    /// Returns as many new threads with the same queue. Work on them and on these shares the cores
    /// evenly.
    ///
    /// # Errors
    /// As [`ComputeThreads::own`].
    pub(super) fn beside(&self) -> io::Result<Self> {
        let pool = ThreadPool::new(self.pool.num_threads(), self.pin)?;
        Ok(Self { pool, stream: self.stream, pin: self.pin, running: Arc::default() })
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
    fn occupied_threads_are_not_passed_on() {
        for threads in [ComputeThreads::own(1, false).unwrap(), ComputeThreads::common().unwrap()] {
            let others = threads.run(|| threads.unoccupied().unwrap());
            assert!(!Arc::ptr_eq(&threads.running, &others.running));
            assert_eq!(others.pool.num_threads(), threads.pool.num_threads());
            // On the CPU, queues cannot be distinguished.
            let queue = |threads: &ComputeThreads| format!("{:?}", threads.stream);
            assert_eq!(queue(&others), queue(&threads), "earlier work goes first");
            let panicked = catch_unwind(AssertUnwindSafe(|| threads.run(|| panic!("on purpose"))));
            assert!(panicked.is_err());
            let same = threads.unoccupied().unwrap();
            assert!(Arc::ptr_eq(&threads.running, &same.running), "a panic occupies nothing");
        }
    }
}
