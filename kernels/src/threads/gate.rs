//! The meeting point of one caller that has pieces of work, and the helpers.

use std::any::Any;
use std::cell::UnsafeCell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Time for which a thread polls before it sleeps. Waking a sleeping thread costs a system call,
/// and the thread runs 10 to 100 µs later. Between two parallel operations, a forward pass of a few
/// rows has small ones on one thread, which take 20 to 60 µs. Polling for longer would keep the
/// core from other work: between steps there are over 200 µs.
const SPIN: Duration = Duration::from_micros(100);

/// The bit of [`Gate::inside`] that is set while helpers may enter.
const OPEN: usize = 1 << (usize::BITS - 1);

/// The order in which threads take pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Deal {
    /// Each thread takes the next piece.
    InTurn,
    /// Each thread takes neighbouring pieces in order, and then pieces that other threads have not
    /// begun. It reads one stream, and can prefetch across pieces.
    Stretches,
}

/// The payload of a panic.
type Payload = Box<dyn Any + Send>;

/// A loop over pieces.
#[derive(Clone, Copy)]
struct Job {
    task: *const (dyn Fn(usize) + Sync),
    pieces: usize,
    /// Number of stretches of neighbouring pieces, about equal. A thread takes the pieces of its
    /// own stretch, then those that are left of the others.
    stretches: usize,
}

impl Job {
    fn stretch(self, index: usize) -> Range<usize> {
        let start = |index: usize| index * self.pieces / self.stretches;
        start(index)..start(index + 1)
    }
}

/// A value on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Padded<T>(T);

/// The entrance to one job at a time. It counts out the job's pieces, and the caller waits until
/// all helpers have left.
pub(super) struct Gate {
    /// Whether a caller's job has the helpers.
    taken: AtomicBool,
    job: UnsafeCell<Option<Job>>,
    /// Number of pieces of each stretch that were taken, or more.
    taken_pieces: Box<[Padded<AtomicUsize>]>,
    /// Number of helpers that work on the job, and [`OPEN`].
    inside: Padded<AtomicUsize>,
    /// Number of jobs so far, which helpers watch.
    jobs: Padded<AtomicUsize>,
    closing: AtomicBool,
    /// Number of helpers that sleep, or are about to.
    asleep: AtomicUsize,
    /// Locked to fall asleep and to wake others.
    bed: Mutex<()>,
    has_job: Condvar,
    is_empty: Condvar,
    /// The first panic of the job.
    panic: Mutex<Option<Payload>>,
}

// SAFETY: only the thread that took the gate writes `job`, while no helper is inside. Helpers read
// it only inside. Its task is `Sync`, and outlives their stay because the caller waits for them.
unsafe impl Send for Gate {}
// SAFETY: as above.
unsafe impl Sync for Gate {}

impl Gate {
    /// Makes a gate for `num_threads` threads, the caller included.
    pub(super) fn new(num_threads: usize) -> Self {
        Self {
            taken: AtomicBool::new(false),
            job: UnsafeCell::new(None),
            taken_pieces: (0..num_threads).map(|_| Padded::default()).collect(),
            inside: Padded::default(),
            jobs: Padded::default(),
            closing: AtomicBool::new(false),
            asleep: AtomicUsize::new(0),
            bed: Mutex::new(()),
            has_job: Condvar::new(),
            is_empty: Condvar::new(),
            panic: Mutex::new(None),
        }
    }

    /// Runs `task(piece)` for each of `pieces`, in the order of `deal`. The helpers share the work,
    /// unless another caller has them.
    ///
    /// # Panics
    /// With the first panic of a piece, after all threads have stopped work on the others.
    pub(super) fn run(&self, pieces: usize, deal: Deal, task: &(dyn Fn(usize) + Sync)) {
        if self.taken.swap(true, Ordering::Acquire) {
            return (0..pieces).for_each(task);
        }
        // SAFETY: only the lifetime is dropped; see `Job` and the end of this function.
        let task = unsafe {
            std::mem::transmute::<*const (dyn Fn(usize) + Sync + '_), *const (dyn Fn(usize) + Sync)>(
                task,
            )
        };
        let stretches = match deal {
            Deal::InTurn => 1,
            Deal::Stretches => self.taken_pieces.len(),
        };
        let job = Job { task, pieces, stretches };
        // SAFETY: this thread took the gate, which is closed and empty.
        unsafe { *self.job.get() = Some(job) };
        for taken in &self.taken_pieces[..stretches] {
            taken.0.store(0, Ordering::Relaxed);
        }
        self.inside.0.store(OPEN, Ordering::Release);
        self.jobs.0.fetch_add(1, Ordering::SeqCst);
        self.wake(pieces - 1);
        self.take_pieces(job, 0);
        self.close();
        let panic = lock(&self.panic).take();
        self.taken.store(false, Ordering::Release);
        if let Some(payload) = panic {
            std::panic::resume_unwind(payload);
        }
    }

    /// Helps with jobs, as the thread with this index, until [`Self::dismiss`].
    pub(super) fn help(&self, thread: usize) {
        let mut jobs = 0;
        while !self.closing.load(Ordering::Acquire) {
            jobs = self.await_job(jobs);
            if let Some(job) = self.enter() {
                self.take_pieces(job, thread);
                if self.inside.0.fetch_sub(1, Ordering::AcqRel) == 1 {
                    // This is the last helper out of a closed gate, whose caller may sleep.
                    drop(lock(&self.bed));
                    self.is_empty.notify_one();
                }
            }
        }
    }

    /// Makes all helpers return.
    pub(super) fn dismiss(&self) {
        self.closing.store(true, Ordering::Release);
        self.jobs.0.fetch_add(1, Ordering::SeqCst);
        self.wake(usize::MAX);
    }

    /// Wakes helpers for `pieces` pieces, if any sleep. Costs one system call.
    fn wake(&self, pieces: usize) {
        if self.asleep.load(Ordering::SeqCst) == 0 {
            return;
        }
        drop(lock(&self.bed));
        match pieces {
            1 => self.has_job.notify_one(),
            _ => self.has_job.notify_all(),
        }
    }

    /// Waits until the number of jobs differs from `seen`, and returns it.
    fn await_job(&self, seen: usize) -> usize {
        let jobs = || self.jobs.0.load(Ordering::SeqCst);
        if !spin_until(|| jobs() != seen) {
            let mut bed = lock(&self.bed);
            self.asleep.fetch_add(1, Ordering::SeqCst);
            while jobs() == seen {
                bed = self.has_job.wait(bed).unwrap_or_else(PoisonError::into_inner);
            }
            self.asleep.fetch_sub(1, Ordering::SeqCst);
        }
        jobs()
    }

    /// Returns the job, if its caller still lets helpers enter.
    fn enter(&self) -> Option<Job> {
        let open = |inside| (inside & OPEN != 0).then_some(inside + 1);
        self.inside.0.fetch_update(Ordering::AcqRel, Ordering::Relaxed, open).ok()?;
        // SAFETY: this thread is inside, so the caller wrote the job before and does not write it
        // now.
        unsafe { *self.job.get() }
    }

    /// Stops further helpers from entering and waits for those inside.
    fn close(&self) {
        self.inside.0.fetch_and(!OPEN, Ordering::AcqRel);
        let empty = || self.inside.0.load(Ordering::Acquire) == 0;
        if !spin_until(empty) {
            let mut bed = lock(&self.bed);
            while !empty() {
                bed = self.is_empty.wait(bed).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// Works on pieces until none is left. After a panic the remaining pieces are skipped.
    fn take_pieces(&self, job: Job, thread: usize) {
        let work = || {
            // SAFETY: the caller waits for all threads that are inside, itself included.
            let task = unsafe { &*job.task };
            for index in (0..job.stretches).map(|i| (thread + i) % job.stretches) {
                let (stretch, taken) = (job.stretch(index), &self.taken_pieces[index].0);
                loop {
                    let piece = stretch.start + taken.fetch_add(1, Ordering::Relaxed);
                    if piece >= stretch.end {
                        break;
                    }
                    task(piece);
                }
            }
        };
        if let Err(payload) = catch_unwind(AssertUnwindSafe(work)) {
            for taken in &self.taken_pieces[..job.stretches] {
                taken.0.store(job.pieces, Ordering::Relaxed);
            }
            lock(&self.panic).get_or_insert(payload);
        }
    }
}

/// Returns whether `done` becomes true within [`SPIN`].
fn spin_until(done: impl Fn() -> bool) -> bool {
    const LOOKS: usize = 16;
    let mut began = None;
    loop {
        for _ in 0..LOOKS {
            if done() {
                return true;
            }
            std::hint::spin_loop();
        }
        if began.get_or_insert_with(Instant::now).elapsed() > SPIN {
            return false;
        }
    }
}

/// Locks a mutex that may be poisoned: no data under these locks can be left half done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
