//! Pause, sleep and resumption of an engine.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{
    sync::{Arc, atomic::Ordering, mpsc::sync_channel},
    time::Duration,
};

use crate::common::{Faults, collect, expected_text, request, spawn, wait::until};
use playhouse_actors::{
    logic::scheduler::PauseState,
    system::{ChoiceStream, PauseMode, System},
};
use tokio::time::timeout;

/// Tokens of an output that does not end by itself within the test, if the steps are slow.
const LONG: u32 = 450;
/// Time after which no output of a running step is on its way, on a loaded machine too.
const QUIET: Duration = Duration::from_secs(1);

/// Starts a system whose long outputs take nine seconds.
async fn spawn_slow() -> (System, Arc<Faults>) {
    let (system, faults) = spawn(64).await;
    faults.step_ms.store(20, Ordering::Relaxed);
    (system, faults)
}

async fn begin(system: &System, salt: u32, count: u32) -> (Vec<u32>, String, ChoiceStream) {
    let (prompt, raw) = request(salt, 20, count);
    let mut stream = system.submit(raw).await.unwrap().choices.remove(0);
    let text = stream.next().await.unwrap().text;
    (prompt, text, stream)
}

async fn num_running(system: &System) -> usize {
    system.status().await.unwrap().scheduler.num_running
}

#[tokio::test(flavor = "multi_thread")]
async fn abort_ends_open_requests_and_later_ones_wait() {
    let (system, _) = spawn_slow().await;
    let (_, _, open) = begin(&system, 1, LONG).await;
    system.pause(PauseMode::Abort).await.unwrap();
    assert_eq!(collect(open).await.1, "abort");
    assert_eq!(num_running(&system).await, 0);

    let (prompt, raw) = request(2, 20, 5);
    let mut later = system.submit(raw).await.unwrap().choices.remove(0);
    // The client may get an empty delta, but no token.
    while let Ok(Some(delta)) = timeout(Duration::from_millis(100), later.next()).await {
        assert!(delta.tokens.is_empty() && delta.finish.is_none(), "it waits: {delta:?}");
    }
    system.resume();
    assert_eq!(collect(later).await.0, expected_text(&prompt, 5));
    system.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wait_lets_running_requests_end() {
    let (system, _) = spawn(64).await;
    let (prompt, begun, open) = begin(&system, 1, LONG).await;
    system.pause(PauseMode::Wait).await.unwrap();
    assert_eq!(system.pause_state(), PauseState::PausedNew);
    let (rest, finish) = collect(open).await;
    let whole = expected_text(&prompt, LONG as usize);
    assert_eq!((begun + &rest, finish.as_str()), (whole, "length"));
    system.shutdown().await;
}

/// A call that waits to sleep while another call resumes must not put a running engine to sleep
/// later.
#[tokio::test(flavor = "multi_thread")]
async fn a_resumed_sleep_does_not_come_later() {
    let (system, faults) = spawn_slow().await;
    let (prompt, begun, open) = begin(&system, 1, LONG).await;
    let system = std::sync::Arc::new(system);
    let sleeper = tokio::spawn({
        let system = std::sync::Arc::clone(&system);
        async move { system.sleep(PauseMode::Wait).await }
    });
    let state = || system.pause_state();
    until("new requests are paused", state, |state| *state == PauseState::PausedNew).await;
    system.resume();
    let refused = sleeper.await.unwrap().unwrap_err();
    assert!(refused.to_string().contains("resumed"), "{refused}");
    assert!(!system.is_sleeping());
    assert_eq!(system.pause_state(), PauseState::Unpaused);
    faults.step_ms.store(0, Ordering::Relaxed);
    let (rest, _) = collect(open).await;
    assert_eq!(begun + &rest, expected_text(&prompt, LONG as usize));
    system.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keep_freezes_streams_and_a_death_does_not_thaw_them() {
    let (system, faults) = spawn_slow().await;
    let (prompt, begun, mut open) = begin(&system, 1, LONG).await;
    system.pause(PauseMode::Keep).await.unwrap();
    let mut text = begun;
    // Output of running steps still arrives.
    while let Ok(Some(delta)) = timeout(QUIET, open.next()).await {
        text.push_str(&delta.text);
        assert!(delta.finish.is_none());
    }
    let steps = system.status().await.unwrap().scheduler.step;
    system.directory().core.scheduler.get().unwrap().kill();
    let quiet = timeout(Duration::from_millis(200), open.next()).await;
    assert!(quiet.is_err(), "the new scheduler is paused, too: {quiet:?} after {steps:?}");
    faults.step_ms.store(0, Ordering::Relaxed);
    system.resume();
    let (rest, finish) = collect(open).await;
    assert_eq!((text + &rest, finish.as_str()), (expected_text(&prompt, LONG as usize), "length"));
    system.shutdown().await;
}

/// Releasing gigabytes takes long. A resumption meanwhile blocks no thread, and takes effect after
/// the release.
#[tokio::test(flavor = "multi_thread")]
async fn a_resumption_during_a_release_blocks_no_thread_and_comes_after_it() {
    let (system, faults) = spawn_slow().await;
    let system = Arc::new(system);
    let (prompt, begun, mut open) = begin(&system, 1, LONG).await;
    faults.block_release.store(true, Ordering::Relaxed);
    let sleeper = tokio::spawn({
        let system = Arc::clone(&system);
        async move { system.sleep(PauseMode::Keep).await }
    });
    let releases = || faults.releases.load(Ordering::Relaxed);
    until("the memory is being released", releases, |count| *count > 0).await;
    let mut text = begun;
    // Output of running steps still arrives.
    while let Ok(Some(delta)) = timeout(QUIET, open.next()).await {
        text.push_str(&delta.text);
    }
    let (resumed, is_resumed) = sync_channel(1);
    let resuming = Arc::clone(&system);
    let thread = std::thread::spawn(move || {
        resuming.resume();
        resumed.send(resuming.pause_state()).unwrap();
    });
    let pause = is_resumed.recv_timeout(Duration::from_secs(60));
    let quiet = timeout(Duration::from_millis(100), open.next()).await;
    faults.block_release.store(false, Ordering::Relaxed);
    assert_eq!(pause, Ok(PauseState::Unpaused), "the thread did not wait");
    assert!(quiet.is_err(), "a step found half a cache: {quiet:?}");
    faults.step_ms.store(0, Ordering::Relaxed);
    thread.join().unwrap();
    sleeper.await.unwrap().unwrap();
    let (rest, _) = collect(open).await;
    assert_eq!(text + &rest, expected_text(&prompt, LONG as usize));
    assert!(!system.is_sleeping(), "it was resumed");
    system.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sleeping_engine_releases_its_memory_and_loses_no_stream() {
    let (system, faults) = spawn(64).await;
    let (prompt, begun, open) = begin(&system, 1, LONG).await;
    system.sleep(PauseMode::Keep).await.unwrap();
    assert!(system.is_sleeping());
    assert_eq!(faults.releases.load(Ordering::Relaxed), 1);
    assert_eq!(num_running(&system).await, 0, "no request holds a block");
    system.wake_up().await.unwrap();
    assert!(!system.is_sleeping());
    let (rest, _) = collect(open).await;
    assert_eq!(begun + &rest, expected_text(&prompt, LONG as usize));

    system.sleep(PauseMode::Abort).await.unwrap();
    system.resume();
    assert!(!system.is_sleeping(), "a resumption also wakes");
    let (prompt, begun, open) = begin(&system, 3, 9).await;
    assert_eq!(begun + &collect(open).await.0, expected_text(&prompt, 9));
    system.shutdown().await;
}
