//! The threads that operations compute on.

use std::cell::RefCell;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;

use super::affinity;
use super::gate::{Deal, Gate};

thread_local! {
    /// The pool that this thread works with. `None`: the common one.
    static CURRENT: RefCell<Option<ThreadPool>> = const { RefCell::new(None) };
}

/// Threads that share the pieces of one operation at a time with the thread that calls it.
///
/// The caller computes, too, so it counts as one of the pool's threads. When two callers share a
/// pool, the second finds the helpers taken and computes alone. The same holds for an operation
/// within a piece of another. Helpers poll for work for some microseconds after an operation, then
/// sleep.
///
/// Clones share the threads, which end when the last clone is dropped.
#[derive(Debug, Clone)]
pub struct ThreadPool {
    inner: Arc<Inner>,
}

struct Inner {
    gate: Arc<Gate>,
    num_threads: usize,
    /// The core of a caller while it computes, and the cores where it may run otherwise.
    caller_cpus: Option<([usize; 1], Arc<[usize]>)>,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ThreadPool").field("num_threads", &self.num_threads).finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.gate.dismiss();
    }
}

impl ThreadPool {
    /// Starts a pool of `num_threads` threads, the caller included.
    ///
    /// With `pin`, each thread is bound to a core of its own, if the pool has as many threads as
    /// the process has cores. Otherwise threads are not bound, because the system knows better
    /// which cores are idle.
    ///
    /// # Errors
    /// If the system refuses to start that many threads.
    pub fn new(num_threads: usize, pin: bool) -> io::Result<Self> {
        // Pools and processes begin on different cores, so that not all callers run on the first.
        static POOLS: AtomicUsize = AtomicUsize::new(0);
        let num_threads = num_threads.max(1);
        let allowed = if pin { affinity::allowed() } else { Vec::new() };
        let first = std::process::id() as usize + POOLS.fetch_add(1, Ordering::Relaxed);
        let cpu = |thread: usize| {
            (allowed.len() == num_threads).then(|| allowed[(first + thread) % num_threads])
        };
        let gate = Arc::new(Gate::new(num_threads));
        let caller_cpus = cpu(0).map(|cpu| ([cpu], Arc::from(&allowed[..])));
        let inner = Inner { gate, num_threads, caller_cpus };
        let pool = Self { inner: Arc::new(inner) };
        for helper in 1..num_threads {
            let (gate, cpu) = (Arc::clone(&pool.inner.gate), cpu(helper));
            let name = format!("playhouse-compute-{helper}");
            thread::Builder::new().name(name).spawn(move || {
                if let Some(cpu) = cpu {
                    affinity::bind(&[cpu]);
                }
                // An operation within a piece has no helpers.
                Self::alone().install(|| gate.help(helper));
            })?;
        }
        Ok(pool)
    }

    /// Returns the pool of operations that are called outside [`ThreadPool::install`]. It has one
    /// thread for each core that the process may use, and does not bind them.
    #[must_use]
    pub fn common() -> Self {
        Self::try_common().unwrap_or_else(|_| Self::alone())
    }

    /// Returns the same pool, for a caller that can report the system's error.
    ///
    /// # Errors
    /// If the system refuses to start that many threads.
    pub fn try_common() -> io::Result<Self> {
        static COMMON: OnceLock<ThreadPool> = OnceLock::new();
        if let Some(common) = COMMON.get() {
            return Ok(common.clone());
        }
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let pool = Self::new(cores, false)?;
        Ok(COMMON.get_or_init(|| pool).clone())
    }

    /// Returns a pool of the caller alone.
    fn alone() -> Self {
        let inner = Inner { gate: Arc::new(Gate::new(1)), num_threads: 1, caller_cpus: None };
        Self { inner: Arc::new(inner) }
    }

    /// Returns the pool in which operations called here compute.
    pub(super) fn current() -> Self {
        CURRENT.with_borrow(Clone::clone).unwrap_or_else(Self::common)
    }

    /// Returns how many threads compute, the caller included.
    #[must_use]
    pub fn num_threads(&self) -> usize {
        self.inner.num_threads
    }

    /// Runs `work` on this thread, with this pool for the operations that it calls.
    pub fn install<R>(&self, work: impl FnOnce() -> R) -> R {
        let _installed = Installed::new(self.clone());
        work()
    }

    /// Runs `task(piece)` for each of `pieces` pieces. There is at least one.
    pub(super) fn run(&self, pieces: usize, deal: Deal, task: &(dyn Fn(usize) + Sync)) {
        if self.inner.num_threads == 1 {
            (0..pieces).for_each(task);
        } else {
            self.inner.gate.run(pieces, deal, task);
        }
    }
}

/// A guard that makes a pool this thread's current one. Dropping it restores the former pool.
struct Installed {
    before: Option<ThreadPool>,
    /// The cores where this thread may run afterwards.
    cpus: Option<Arc<[usize]>>,
}

impl Installed {
    fn new(pool: ThreadPool) -> Self {
        let cpus = pool.inner.caller_cpus.as_ref().map(|(bound, free)| {
            affinity::bind(bound);
            Arc::clone(free)
        });
        let before = CURRENT.with_borrow_mut(|current| current.replace(pool));
        Self { before, cpus }
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        CURRENT.with_borrow_mut(|current| *current = self.before.take());
        if let Some(cpus) = &self.cpus {
            affinity::bind(cpus);
        }
    }
}
