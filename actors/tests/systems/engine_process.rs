//! The core in an engine process, which dies while streams run.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use playhouse_actors::{
    fault::How,
    link::frames::Fault,
    logic::scheduler::PauseState,
    message::{Edge, Role},
    system::{ChoiceStream, Health, PauseMode, System},
};

use crate::common::{
    collect, constrained, expected_text,
    linked::{FakeLauncher, spawn_linked, spawn_with_spare},
    request,
};

const REQUESTS: u32 = 6;
const TOKENS: u32 = 200;

/// Runs streams while `strike` ends processes, each time when a stream has gone on, and compares
/// the streams with a run without faults.
async fn streams_survive(
    strike: impl Fn(&System, &FakeLauncher),
    strikes: usize,
) -> (System, Arc<FakeLauncher>) {
    let (system, launcher, _) = spawn_linked(128, |_| {}).await;
    let mut streams = Vec::new();
    for salt in 0..REQUESTS {
        let (prompt, raw) = request(salt, 40, TOKENS);
        let mut submission = system.submit(raw).await.unwrap();
        streams.push((prompt, submission.choices.remove(0)));
    }
    let (prompt, mut first) = streams.remove(0);
    let mut text = first.next().await.unwrap().text;
    for _ in 0..strikes {
        strike(&system, &launcher);
        go_on(&mut first, &mut text).await;
    }
    text.push_str(&collect(first).await.0);
    assert_eq!(text, expected_text(&prompt, TOKENS as usize));
    for (prompt, stream) in streams {
        let (text, finish) = collect(stream).await;
        assert_eq!((text, finish.as_str()), (expected_text(&prompt, TOKENS as usize), "length"));
    }
    assert!(system.drain(Duration::from_secs(10)).await, "nothing stays open");
    (system, launcher)
}

async fn go_on(stream: &mut ChoiceStream, text: &mut String) {
    let before = text.len();
    while text.len() == before {
        match stream.next().await {
            Some(delta) => text.push_str(&delta.text),
            None => return,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_survive_killed_processes() {
    let (system, launcher) =
        streams_survive(|_, launcher| launcher.process().end("SIGSEGV"), 6).await;
    let view = system.engine_process().unwrap();
    assert!(launcher.processes.load(Ordering::Relaxed) > 3);
    assert_eq!(view.ends.first().unwrap(), "ended: SIGSEGV");
    assert!(system.directory().restarts() > 0, "the core's actors count as replaced");
    system.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_survive_stopped_processes() {
    let (system, _) = streams_survive(|_, launcher| launcher.process().stop(), 2).await;
    assert_eq!(system.engine_process().unwrap().ends[0], "was stopped by a signal");
    system.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_survive_garbage_on_the_link() {
    let garbage = |system: &System, _: &FakeLauncher| {
        system.chaos().engine_process(Fault::Garbage);
    };
    let (system, _) = streams_survive(garbage, 2).await;
    let ends = system.engine_process().unwrap().ends;
    assert!(ends[0].starts_with("was killed: garbage on the link"), "{ends:?}");
    system.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_survive_actors_of_the_process() {
    for role in [Role::Scheduler, Role::KvCacheManager, Role::Worker, Role::StructuredOutput] {
        let kill = |system: &System, _: &FakeLauncher| {
            // An actor that is being replaced cannot be struck.
            let _ = system.chaos().strike(role, 0, How::Kill);
        };
        let (system, launcher) = streams_survive(kill, 3).await;
        assert_eq!(launcher.processes.load(Ordering::Relaxed), 1, "the process lives on");
        assert!(system.directory().restarts() > 0, "{role:?}");
        system.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_survive_the_actors_of_the_front() {
    for role in [Role::Core, Role::Ledger, Role::Egress] {
        let kill = |system: &System, _: &FakeLauncher| {
            let _ = system.chaos().strike(role, 0, How::Kill);
        };
        let (system, launcher) = streams_survive(kill, 2).await;
        let processes = launcher.processes.load(Ordering::Relaxed);
        assert_eq!(processes > 1, role == Role::Core, "{role:?}: {processes} processes");
        system.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_wait_for_the_next_process() {
    let (system, launcher, _) = spawn_linked(128, |_| {}).await;
    launcher.process().end("SIGKILL");
    let (prompt, raw) = request(1, 40, 20);
    let mut submission = system.submit(raw).await.unwrap();
    let text = collect(submission.choices.remove(0)).await.0;
    assert_eq!(text, expected_text(&prompt, 20));
    system.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_cannot_start_is_tried_again() {
    let (system, launcher, _) = spawn_linked(128, |_| {}).await;
    let (prompt, raw) = request(1, 40, 100);
    let mut submission = system.submit(raw).await.unwrap();
    launcher.broken.store(2, Ordering::Release);
    launcher.process().end("SIGKILL");
    while system.health() == Health::Ready {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let text = collect(submission.choices.remove(0)).await.0;
    assert_eq!(text, expected_text(&prompt, 100));
    let ends = system.engine_process().unwrap().ends;
    assert_eq!(ends, ["ended: SIGKILL", "ended: exit code 0", "ended: exit code 0"]);
    assert_eq!(system.health(), Health::Ready);
    system.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_reaches_the_process() {
    let (system, launcher, faults) = spawn_linked(128, |_| {}).await;
    system.set_watched(true);
    let (prompt, raw) = request(1, 40, 60);
    let mut stream = system.submit(raw).await.unwrap().choices.remove(0);
    let mut text = stream.next().await.unwrap().text;
    system.pause(PauseMode::Keep).await.unwrap();
    let status = system.status().await.unwrap();
    assert_eq!((status.open_requests, system.pause_state()), (1, PauseState::PausedAll));
    // A pause holds for the next process too.
    launcher.process().end("SIGKILL");
    let view = loop {
        let view = system.look().await;
        if view.scheduler.as_ref().is_ok_and(|scheduler| !scheduler.waiting.is_empty()) {
            break view;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    assert!(view.kv_cache.is_ok());
    assert!(system.reset_prefix_cache(true).await.unwrap());
    system.sleep(PauseMode::Keep).await.unwrap();
    assert_eq!(faults.releases.load(Ordering::Relaxed), 1);
    system.wake_up().await.unwrap();
    text.push_str(&collect(stream).await.0);
    assert_eq!(text, expected_text(&prompt, 60));
    // The process tells its counts from time to time.
    let is_of_steps =
        |(edge, count): &(Edge, u64)| edge.as_str() == "scheduler->worker" && *count > 0;
    while !system.look().await.edges.iter().any(is_of_steps) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let timelines = system.look().await.timelines;
    assert!(timelines.requests().count() > 0, "the steps were noted");
    system.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn grammars_are_compiled_in_the_process() {
    let (system, launcher, _) = spawn_linked(128, |_| {}).await;
    let (prompt, raw) = constrained(3, 50, "[0-9]+");
    let mut stream = system.submit(raw).await.unwrap().choices.remove(0);
    let mut text = stream.next().await.unwrap().text;
    launcher.process().end("SIGABRT");
    text.push_str(&collect(stream).await.0);
    assert_eq!(text, expected_text(&prompt, 50));
    let (_, raw) = constrained(4, 50, "invalid");
    let stream = system.submit(raw).await.unwrap().choices.remove(0);
    assert_eq!(collect(stream).await.1, "error");
    system.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spare_process_takes_over() {
    let (system, launcher, _) = spawn_with_spare(128, true, |_| {}).await;
    let (first, spare) = (launcher.numbered(1).await, launcher.numbered(2).await);
    let (prompt, raw) = request(1, 40, 100);
    let mut stream = system.submit(raw).await.unwrap().choices.remove(0);
    let mut text = stream.next().await.unwrap().text;
    first.end("SIGKILL");
    go_on(&mut stream, &mut text).await;
    while system.engine_process().unwrap().pid != Some(spare.number) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    text.push_str(&collect(stream).await.0);
    assert_eq!(text, expected_text(&prompt, 100));
    // A spare process that ends is replaced, and the one that serves goes on.
    launcher.numbered(3).await.end("SIGSEGV");
    launcher.numbered(4).await;
    assert_eq!(system.engine_process().unwrap().pid, Some(spare.number));
    system.shutdown().await;
}
