//! A process adopts the KV cache that the one before has left.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use playhouse_actors::{
    logic::request::ids::EngineIndex,
    system::{ChoiceStream, System},
};

use crate::common::{
    Faults, collect, expected_text,
    linked::{FakeLauncher, spawn_engines_with, spawn_linked, spawn_with_spare},
    request, wait,
};

const REQUESTS: u32 = 6;
const TOKENS: usize = 300;
/// Blocks for all requests.
const BLOCKS: u32 = 256;
/// So that no stream ends before the last kill.
const STEP_MS: u64 = 20;
/// Text of some tokens.
const GO_ON_BYTES: usize = 40;
/// More tokens than a request computes again that has adopted its blocks.
const SEVERAL: u64 = 5;
const PROMPT: usize = 40;

/// Streams that have begun.
struct Running {
    system: System,
    launcher: Arc<FakeLauncher>,
    faults: Arc<Faults>,
    streams: Vec<(Vec<u32>, ChoiceStream, String)>,
}

impl Running {
    async fn begin(spawned: (System, Arc<FakeLauncher>, Arc<Faults>)) -> Self {
        let (system, launcher, faults) = spawned;
        faults.step_ms.store(STEP_MS, Ordering::Relaxed);
        let mut streams = Vec::new();
        for salt in 0..REQUESTS {
            let (prompt, raw) = request(salt, PROMPT, TOKENS as u32);
            let mut submission = system.submit(raw).await.unwrap();
            streams.push((prompt, submission.choices.remove(0), String::new()));
        }
        let mut running = Self { system, launcher, faults, streams };
        running.go_on().await;
        running
    }

    /// Waits until each stream has gone on by some tokens, so that steps of the process have ended.
    async fn go_on(&mut self) {
        for (_, stream, text) in &mut self.streams {
            let wanted = text.len() + GO_ON_BYTES;
            while text.len() < wanted {
                let delta = wait::next(stream, text).await;
                text.push_str(&delta.unwrap().text);
            }
        }
    }

    /// Ends the process. Returns the requests that the next one has resumed, and the tokens that it
    /// has computed for them in their first steps.
    async fn after(&mut self, how: &str) -> (u64, u64) {
        let read = |faults: &Faults| {
            let count = |counter: &AtomicU64| counter.load(Ordering::Acquire);
            (count(&faults.resumed), count(&faults.resumed_tokens))
        };
        let before = read(&self.faults);
        let pid = self.system.engine_process().unwrap().pid;
        self.launcher.numbered(pid.unwrap() as usize).await.end(how);
        let all = before.0 + u64::from(REQUESTS);
        let look = || read(&self.faults);
        let what = format!("{all} requests are resumed");
        let after = wait::until(&what, look, |(resumed, _)| *resumed >= all).await;
        (after.0 - before.0, after.1 - before.1)
    }

    async fn finish(self) {
        self.faults.step_ms.store(0, Ordering::Relaxed);
        for (prompt, stream, text) in self.streams {
            let text = text + &collect(stream).await.0;
            assert_eq!(text, expected_text(&prompt, TOKENS));
        }
        self.system.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_computes_one_token_again() {
    let mut running = Running::begin(spawn_linked(BLOCKS, |_| {}).await).await;
    for _ in 0..3 {
        let (resumed, tokens) = running.after("SIGKILL").await;
        assert_eq!(tokens, resumed);
        running.go_on().await;
    }
    running.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spare_process_adopts_the_kv_cache_too() {
    let mut running = Running::begin(spawn_with_spare(BLOCKS, true, |_| {}).await).await;
    running.launcher.numbered(2).await;
    let (resumed, tokens) = running.after("SIGKILL").await;
    assert_eq!(tokens, resumed);
    running.finish().await;
}

/// Returns a first engine that has all requests, beside another one.
async fn in_the_first_engine(keeps_spare: bool) -> (Running, Arc<FakeLauncher>) {
    let (system, launchers) = spawn_engines_with(&[keeps_spare, false], BLOCKS, |_| {}).await;
    system.drain_engine(EngineIndex(1), false).unwrap();
    let [first, second] = <[_; 2]>::try_from(launchers).unwrap();
    let faults = first.shared_faults();
    let running = Running::begin((system, first, faults)).await;
    running.system.undrain_engine(EngineIndex(1)).unwrap();
    (running, second)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_spare_process_of_one_of_several_engines_adopts_the_kv_cache_too() {
    let (mut running, second) = in_the_first_engine(true).await;
    let (resumed, tokens) = running.after("SIGKILL").await;
    assert_eq!(tokens, resumed);
    assert_eq!(second.faults().resumed.load(Ordering::Acquire), 0, "no request has moved");
    running.finish().await;
}

/// The tails that its own last process had are older than the requests.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_comes_back_to_an_engine_does_not_find_its_tail() {
    let (mut running, second) = in_the_first_engine(false).await;
    second.faults().step_ms.store(STEP_MS, Ordering::Relaxed);
    running.launcher.process().end("SIGKILL");
    running.go_on().await;
    assert_eq!(second.faults().resumed.load(Ordering::Acquire), u64::from(REQUESTS));
    let process = || running.system.engine_process().unwrap();
    wait::until("the process is replaced", process, |process| process.num_starts >= 2).await;
    second.broken.store(1 << 40, Ordering::Release);
    second.process().end("SIGKILL");
    running.go_on().await;
    let read = |counter: &AtomicU64| counter.load(Ordering::Acquire);
    let (resumed, tokens) = (read(&running.faults.resumed), read(&running.faults.resumed_tokens));
    assert_eq!(resumed, u64::from(REQUESTS));
    assert!(tokens > resumed, "{tokens} tokens of {resumed} requests");
    running.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_may_live_is_not_succeeded() {
    let mut running = Running::begin(spawn_linked(BLOCKS, |_| {}).await).await;
    running.launcher.hides_ends.store(true, Ordering::Release);
    let (resumed, tokens) = running.after("SIGKILL").await;
    assert!(tokens > SEVERAL * resumed, "{tokens} tokens of {resumed} requests");
    running.go_on().await;
    // The one after adopts the sealed blocks of the first. Its tails are old.
    running.launcher.hides_ends.store(false, Ordering::Release);
    let (resumed, tokens) = running.after("SIGKILL").await;
    assert!(tokens > resumed, "{tokens} tokens of {resumed} requests");
    running.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_without_memory_leaves_none_in_use() {
    let mut running = Running::begin(spawn_linked(BLOCKS, |_| {}).await).await;
    let (resumed, tokens) = running.after("exit code 71 (out of memory)").await;
    assert!(tokens > SEVERAL * resumed, "{tokens} tokens of {resumed} requests");
    running.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_content_is_not_adopted() {
    let mut running = Running::begin(spawn_linked(BLOCKS, |_| {}).await).await;
    running.launcher.kept.lock().iter_mut().skip(8).for_each(|word| *word ^= 1 << 40);
    let (resumed, tokens) = running.after("SIGKILL").await;
    assert!(tokens > SEVERAL * resumed, "{tokens} tokens of {resumed} requests");
    running.go_on().await;
    let (resumed, tokens) = running.after("SIGKILL").await;
    assert_eq!(tokens, resumed, "the next directory is whole");
    running.finish().await;
}
