//! Counts the allocations of a decode step by thread. A model's operations allocate nothing,
//! however long an output gets. Only results and the messages that carry them are allocated.
//!
//! This is the only test of its file because it counts allocations of the whole process.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stdout, reason = "the counts are what one wants to see")]
#![allow(clippy::panic, reason = "a test that cannot go on has failed")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    collections::BTreeMap,
    fs,
    sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering::Relaxed},
};

use playhouse::{
    Engine, EngineConfig,
    api::{Prompt, RawRequest, SamplingParams},
};

/// Steps before the count begins, and steps in each half of the count.
const WARM_UP: u32 = 200;
const STEPS: u32 = 400;
/// Allocations a step on the thread that computes it, at most, however many requests it has. They
/// are the step's result, its message, and the wake-up of the thread that waits for the next step.
/// From 3.1 to 4.04 were measured: a thread that computes at once is not woken.
const DEVICE_PER_STEP_MAX: f64 = 4.5;
/// Allocations a step and request on all threads together, at most. `benches/RESULTS.md` has the
/// measured number.
const PER_STEP_MAX: f64 = 60.0;
/// Requests that run at a time in the second part.
const REQUESTS: usize = 16;

const THREADS_MAX: usize = 256;
static COUNTS: [AtomicU64; THREADS_MAX] = [const { AtomicU64::new(0) }; THREADS_MAX];
static THREADS: [AtomicI32; THREADS_MAX] = [const { AtomicI32::new(0) }; THREADS_MAX];
static NEXT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static SLOT: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// The system's allocator with a count for each thread.
struct Counting;

// SAFETY: every call goes to the system allocator; counting touches neither memory nor arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promise is passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count() {
    let _ = SLOT.try_with(|slot| {
        if slot.get() == usize::MAX {
            slot.set(NEXT.fetch_add(1, Relaxed).min(THREADS_MAX - 1));
            // SAFETY: asks for this thread's id and nothing else.
            THREADS[slot.get()].store(unsafe { libc::gettid() }, Relaxed);
        }
        COUNTS[slot.get()].fetch_add(1, Relaxed);
    });
}

/// Returns the allocations so far by thread name. All threads that have ended count as one.
fn counts() -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for (count, thread) in COUNTS.iter().zip(&THREADS) {
        let name = fs::read_to_string(format!("/proc/self/task/{}/comm", thread.load(Relaxed)));
        let name = name.map_or("ended".to_owned(), |name| name.trim().to_owned());
        *counts.entry(name).or_default() += count.load(Relaxed);
    }
    counts
}

#[tokio::test]
async fn the_operations_of_a_step_ask_for_no_memory_however_long_an_output_gets() {
    let engine = Engine::spawn(EngineConfig::default(), |_| ()).await.unwrap();
    for requests in [1, REQUESTS] {
        let halves = per_step(&engine, requests).await;
        for (name, count) in halves.iter().flatten() {
            let is_helper = name.starts_with("playhouse-compu");
            assert!(!is_helper, "{name} asks for memory {count:.1} times a step");
            let is_device = name.starts_with("playhouse-devic");
            assert!(!is_device || *count <= DEVICE_PER_STEP_MAX, "{count:.1} on {name}");
        }
        let totals: Vec<f64> = halves.iter().map(|half| half.values().sum()).collect();
        let [first, second] = totals[..] else { panic!("two halves, not {halves:?}") };
        assert!(second <= first * 1.25, "{first:.1}, then {second:.1} allocations a step");
        let most = PER_STEP_MAX * requests as f64;
        assert!(second <= most, "{second:.1} allocations a step of {requests} requests");
    }
    engine.shutdown().await;
}

/// Returns the allocations a step by thread name, for each half of the steps of `requests`
/// requests.
async fn per_step(engine: &Engine, requests: usize) -> Vec<BTreeMap<String, f64>> {
    let mut streams = Vec::new();
    for request in 0..requests as u32 {
        let tokens = (300 + request..332 + request).collect();
        let params =
            SamplingParams { temperature: 0.0, ignore_eos: true, ..SamplingParams::default() };
        let max_tokens = Some(WARM_UP + 2 * STEPS);
        let raw = RawRequest { params, max_tokens, ..RawRequest::new(Prompt::Tokens(tokens)) };
        streams.push(engine.submit(raw).await.unwrap().choices.remove(0));
    }
    let mut first = streams.remove(0);
    let others = streams
        .into_iter()
        .map(|mut stream| tokio::spawn(async move { while stream.next().await.is_some() {} }));
    let others: Vec<_> = others.collect();
    let (mut tokens, mut marks) = (0, Vec::new());
    while let Some(delta) = first.next().await {
        tokens += delta.tokens.len() as u32;
        if tokens >= WARM_UP + STEPS * marks.len() as u32 {
            marks.push((tokens, counts()));
        }
    }
    for other in others {
        other.await.unwrap();
    }
    let halves = marks.windows(2).map(|pair| {
        let steps = f64::from(pair[1].0 - pair[0].0);
        let per_step = pair[1].1.iter().map(|(name, after)| {
            let before = pair[0].1.get(name).copied().unwrap_or(0);
            (name.clone(), after.saturating_sub(before) as f64 / steps)
        });
        let busy: BTreeMap<_, _> = per_step.filter(|(_, count)| *count >= 0.05).collect();
        println!("allocations a step of {requests}: {busy:.1?}");
        busy
    });
    halves.collect()
}
