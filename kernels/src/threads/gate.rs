//! The meeting of one caller, who has pieces of work, with those who help.

use std::any::Any;
use std::cell::UnsafeCell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a thread looks for what it waits for before it sleeps. Sleeping costs the one who wakes
/// it a system call, and 10 to 100 µs until it runs. Between two operations over the threads a forward
/// pass of a few rows has small ones on one thread, some 20 to 60 µs of them. Longer would take the
/// core from whoever else needs it: between steps there are over 200 µs.
const SPIN: Duration = Duration::from_micros(100);

/// The bit of [`Gate::inside`] that says that helpers may come in.
const OPEN: usize = 1 << (usize::BITS - 1);

/// Who gets which pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Deal {
    /// Each thread the next one.
    InTurn,
    /// Each thread neighbours, as far as it gets, and then what others have not begun: what it reads
    /// is one stream, which it asks for ahead across pieces.
    Stretches,
}

/// What a panic leaves.
type Payload = Box<dyn Any + Send>;

/// A loop over pieces.
#[derive(Clone, Copy)]
struct Job {
    task: *const (dyn Fn(usize) + Sync),
    pieces: usize,
    /// Stretches of neighbouring pieces, about equal: a thread takes its own, then what is left of
    /// the others'.
    stretches: usize,
}

impl Job {
    fn stretch(self, index: usize) -> Range<usize> {
        let start = |index: usize| index * self.pieces / self.stretches;
        start(index)..start(index + 1)
    }
}

/// On cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Padded<T>(T);

/// One job at a time: its pieces are counted out; who is inside holds the caller back.
pub(super) struct Gate {
    /// Whether somebody's job has the helpers.
    taken: AtomicBool,
    job: UnsafeCell<Option<Job>>,
    /// How many pieces of each stretch were taken, or more.
    taken_pieces: Box<[Padded<AtomicUsize>]>,
    /// Helpers that work on the job, and [`OPEN`].
    inside: Padded<AtomicUsize>,
    /// Jobs so far: what helpers watch.
    jobs: Padded<AtomicUsize>,
    closing: AtomicBool,
    /// Helpers that sleep, or are about to.
    asleep: AtomicUsize,
    /// Held to fall asleep and to wake.
    bed: Mutex<()>,
    has_job: Condvar,
    is_empty: Condvar,
    /// The first panic of the job.
    panic: Mutex<Option<Payload>>,
}

// SAFETY: `job` is written only by the one that took the gate, while nobody is inside; helpers read
// it only inside. Its task is `Sync`, and outlives their stay: the caller waits for them.
unsafe impl Send for Gate {}
// SAFETY: as above.
unsafe impl Sync for Gate {}

impl Gate {
    /// For so many threads, the caller among them.
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

    /// Runs `task(piece)` for each of `pieces`, with the helpers if nobody else has them: dealt as
    /// `deal` says.
    ///
    /// # Panics
    /// With the first panic of a piece, once nobody works on the others.
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
        // SAFETY: the gate is ours, closed and empty.
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
                    // The last one out of a closed gate: its caller may sleep.
                    drop(lock(&self.bed));
                    self.is_empty.notify_one();
                }
            }
        }
    }

    /// Sends the helpers home.
    pub(super) fn dismiss(&self) {
        self.closing.store(true, Ordering::Release);
        self.jobs.0.fetch_add(1, Ordering::SeqCst);
        self.wake(usize::MAX);
    }

    /// Wakes helpers for so many pieces, if any sleep: one system call.
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

    /// Waits for another number of jobs than `seen`.
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

    /// The job, if its caller still lets helpers in.
    fn enter(&self) -> Option<Job> {
        let open = |inside| (inside & OPEN != 0).then_some(inside + 1);
        self.inside.0.fetch_update(Ordering::AcqRel, Ordering::Relaxed, open).ok()?;
        // SAFETY: we are inside, so the caller wrote it before and does not write now.
        unsafe { *self.job.get() }
    }

    /// Lets nobody in any more and waits for those inside.
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

    /// Works on pieces until none is left. After a panic the others are left undone.
    fn take_pieces(&self, job: Job, thread: usize) {
        let work = || {
            // SAFETY: the caller waits for all who are inside, itself among them.
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

/// Whether `done` comes true within [`SPIN`].
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

/// Nothing under these locks can be left half done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
