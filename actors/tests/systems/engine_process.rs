//! The core in an engine process, which dies while streams run.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use playhouse_actors::{
    error::RequestError,
    fault::How,
    link::{LoadError, Loading, frames::Fault, parts::ENVELOPE_LEN},
    logic::{
        request::{EngineRequest, FinishReason, failure::Failure},
        scheduler::PauseState,
    },
    message::{
        Edge, Role,
        input_processor::{Prompt, RawRequest},
    },
    system::{ChoiceStream, Health, PauseMode, System, SystemConfig, SystemView},
};
use tokio::time::{Instant, timeout};

use crate::common::{
    collect, constrained, expected_text,
    linked::{FakeLauncher, launcher, spawn_linked},
    request,
    wait::{self, until},
};

const PATIENCE: Duration = Duration::from_secs(120);
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
    let mut text = wait::next(&mut first, "").await.unwrap().text;
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
    assert!(system.drain(PATIENCE).await, "nothing stays open");
    (system, launcher)
}

/// Submits a request. Returns its stream, and the text of the first output.
pub(crate) async fn begun(system: &System, raw: RawRequest) -> (ChoiceStream, String) {
    let mut stream = system.submit(raw).await.unwrap().choices.remove(0);
    let text = wait::next(&mut stream, "").await.unwrap().text;
    (stream, text)
}

pub(crate) async fn go_on(stream: &mut ChoiceStream, text: &mut String) {
    let before = text.len();
    while text.len() == before {
        match wait::next(stream, text).await {
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
        // The process reports the restarts of its actors from time to time.
        let what = format!("a restart of the {} is reported", role.as_str());
        until(&what, || system.directory().restarts(), |restarts| *restarts > 0).await;
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
    let text = collect(submission.choices.remove(0)).await.0;
    assert_eq!(text, expected_text(&prompt, 100));
    // On a busy machine the stream may have ended before the process was killed.
    let look = || (system.engine_process().unwrap().ends, system.health());
    let has_recovered =
        |(ends, health): &(Vec<String>, Health)| ends.len() >= 3 && *health == Health::Ready;
    let (ends, _) = until("a process serves after three ends", look, has_recovered).await;
    assert_eq!(ends, ["ended: SIGKILL", "ended: exit code 0", "ended: exit code 0"]);
    system.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_reaches_the_process() {
    let (system, launcher, faults) = spawn_linked(128, |_| {}).await;
    system.set_watched(true);
    // So that the request does not end before the pause.
    faults.step_ms.store(20, Ordering::Relaxed);
    let (prompt, raw) = request(1, 40, 60);
    let (stream, mut text) = begun(&system, raw).await;
    system.pause(PauseMode::Keep).await.unwrap();
    let status = system.status().await.unwrap();
    assert_eq!((status.open_requests, system.pause_state()), (1, PauseState::PausedAll));
    // A pause holds for the next process too.
    launcher.process().end("SIGKILL");
    until_seen(&system, "the request waits in the next process", |view| {
        let core = &view.cores[0];
        let waits = core.scheduler.as_ref().is_ok_and(|scheduler| !scheduler.waiting.is_empty());
        waits && core.kv_cache.is_ok()
    })
    .await;
    assert!(system.reset_prefix_cache(true).await.unwrap());
    system.sleep(PauseMode::Keep).await.unwrap();
    assert_eq!(faults.releases.load(Ordering::Relaxed), 1);
    system.wake_up().await.unwrap();
    text.push_str(&collect(stream).await.0);
    assert_eq!(text, expected_text(&prompt, 60));
    // The process tells its counts from time to time.
    let is_of_steps =
        |(edge, count): &(Edge, u64)| edge.as_str() == "scheduler->worker" && *count > 0;
    until_seen(&system, "the steps are counted", |view| view.edges.iter().any(is_of_steps)).await;
    // The process may be late with its answer.
    until_seen(&system, "the steps are noted", |view| {
        view.cores[0].timelines.requests().next().is_some()
    })
    .await;
    system.shutdown().await;
}

/// Looks at the system until its view is the awaited one.
async fn until_seen(system: &System, what: &str, is_awaited: impl Fn(&SystemView) -> bool) {
    let limit = Instant::now() + PATIENCE;
    loop {
        let view = system.look().await;
        if is_awaited(&view) {
            return;
        }
        assert!(Instant::now() < limit, "not within {PATIENCE:?}: {what}; the last view: {view:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// The next process of an engine that sleeps has memory, which it releases first.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_starts_asleep_releases_its_memory_before_it_wakes() {
    let (system, launcher, faults) = spawn_linked(128, |_| {}).await;
    let (prompt, raw) = request(1, 40, 60);
    let (stream, mut text) = begun(&system, raw).await;
    system.sleep(PauseMode::Keep).await.unwrap();
    faults.block_release.store(true, Ordering::Relaxed);
    launcher.process().end("SIGKILL");
    let releases = || faults.releases.load(Ordering::Relaxed);
    until("the next process releases its memory", releases, |count| *count >= 2).await;
    let woken = timeout(Duration::from_millis(200), system.wake_up()).await;
    assert!(woken.is_err(), "the release is not over");
    assert_eq!(faults.restores.load(Ordering::Relaxed), 0);
    faults.block_release.store(false, Ordering::Relaxed);
    system.wake_up().await.unwrap();
    text.push_str(&collect(stream).await.0);
    assert_eq!(text, expected_text(&prompt, 60));
    system.shutdown().await;
}

/// The end of a process is known later than that of its link.
#[tokio::test(flavor = "multi_thread")]
async fn an_adapter_is_checked_by_the_next_process() {
    let (system, launcher, _) = spawn_linked(128, |_| {}).await;
    launcher.hides_ends.store(true, Ordering::Release);
    launcher.process().end("SIGKILL");
    // Some messages are lost, so the link is known to be broken.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let later = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        launcher.hides_ends.store(false, Ordering::Release);
    };
    let checked = timeout(PATIENCE, system.check_adapter("an/adapter"));
    let (checked, ()) = tokio::join!(checked, later);
    assert!(checked.unwrap().is_some_and(|checked| checked.is_err()), "adapters are not enabled");
    system.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn grammars_are_compiled_in_the_process() {
    let (system, launcher, _) = spawn_linked(128, |_| {}).await;
    let (prompt, raw) = constrained(3, 50, "[0-9]+");
    let (stream, mut text) = begun(&system, raw).await;
    launcher.process().end("SIGABRT");
    text.push_str(&collect(stream).await.0);
    assert_eq!(text, expected_text(&prompt, 50));
    let (_, raw) = constrained(4, 50, "invalid");
    let stream = system.submit(raw).await.unwrap().choices.remove(0);
    assert_eq!(collect(stream).await.1, "error");
    system.shutdown().await;
}

/// The requests and their results take many messages, also when a process is replaced.
#[tokio::test(flavor = "multi_thread")]
async fn batches_larger_than_a_message_pass_whole() {
    let small = |config: &mut SystemConfig| config.max_message_bytes = 2_500;
    let (system, launcher, _) = spawn_linked(600, small).await;
    let (prompt, mut raw) = request(1, 300, 60);
    (raw.params.n, raw.params.temperature) = (20, 1.0);
    let mut streams = system.submit(raw.clone()).await.unwrap().choices;
    let mut first = streams.remove(0);
    let mut text = wait::next(&mut first, "").await.unwrap().text;
    let epoch = system.epoch();
    go_on(&mut first, &mut text).await;
    assert_eq!(system.epoch(), epoch, "no order is lost");
    launcher.process().end("SIGKILL");
    // A request too large for any message is refused, and the others go on.
    let mut large = request(2, 300, 60).1;
    large.cache_salt = Some("x".repeat(3_000));
    let refused = system.submit(large).await;
    let limit = 2_500 - ENVELOPE_LEN;
    assert!(
        matches!(
            refused,
            Err(RequestError::MessageTooLarge { what: "request", limit_bytes, .. })
                if limit_bytes == limit
        ),
        "{refused:?}"
    );
    text.push_str(&collect(first).await.0);
    assert_eq!(text, expected_text(&prompt, 60));
    for stream in streams {
        assert_eq!(collect(stream).await.0, expected_text(&prompt, 60));
    }
    assert_eq!(launcher.processes.load(Ordering::Relaxed), 2);
    system.shutdown().await;
}

/// An earlier server without an engine process has accepted it.
#[tokio::test(flavor = "multi_thread")]
async fn an_accepted_request_too_large_for_a_message_fails_alone() {
    let small = |config: &mut SystemConfig| config.max_message_bytes = 2_500;
    let (system, launcher, _) = spawn_linked(128, small).await;
    let (prompt, raw) = request(1, 40, 300);
    let (stream, mut text) = begun(&system, raw).await;
    let mut large = EngineRequest::for_test(1_000, 0..40);
    large.cache_salt = Some("x".repeat(3_000).into());
    let mut beside = EngineRequest::for_test(1_001, 0..40);
    beside.sampling_mut().max_tokens = 30;
    beside.sampling_mut().temperature = 0.0;
    let requests = vec![Arc::new(large), Arc::new(beside)];
    let mut choices = system.restore(requests).await.unwrap();
    let (beside, mut large) = (choices.remove(1), choices.remove(0));
    let mut end = None;
    while let Some(delta) = wait::next(&mut large, "").await {
        end = delta.finish;
    }
    assert_eq!(end, Some(FinishReason::Error(Failure::MessageTooLarge)));
    launcher.process().end("SIGKILL");
    let prompt_beside: Vec<_> = (0..40).collect();
    assert_eq!(collect(beside).await.0, expected_text(&prompt_beside, 30));
    text.push_str(&collect(stream).await.0);
    assert_eq!(text, expected_text(&prompt, 300));
    system.shutdown().await;
}

/// Every process ends in the step of this request, with six others in the batch.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_ends_every_process_fails_alone_and_is_refused_next_time() {
    let (system, launcher, faults) = spawn_linked(128, |_| {}).await;
    faults.deadly.store(991, Ordering::Relaxed);
    let mut streams = Vec::new();
    for salt in 0..REQUESTS {
        let (prompt, raw) = request(salt, 40, 100);
        streams.push((prompt, system.submit(raw).await.unwrap().choices.remove(0)));
    }
    let (_, mut deadly) = request(3, 40, 100);
    deadly.prompt = Prompt::Tokens(vec![5, 991, 7]);
    let mut convict = system.submit(deadly.clone()).await.unwrap().choices.remove(0);
    for (prompt, stream) in streams {
        let (text, finish) = timeout(PATIENCE, collect(stream)).await.unwrap();
        assert_eq!((text, finish.as_str()), (expected_text(&prompt, 100), "length"));
    }
    let mut end = None;
    while let Some(delta) = timeout(PATIENCE, convict.next()).await.unwrap() {
        end = delta.finish;
    }
    assert_eq!(end, Some(FinishReason::Error(Failure::Quarantined)));
    assert!(launcher.processes.load(Ordering::Relaxed) > 3);
    // The breaker has opened, and a canary closes it.
    until("the breaker is closed", || system.health(), |health| *health == Health::Ready).await;
    let again = system.submit(deadly).await;
    assert!(matches!(again, Err(RequestError::Quarantined { .. })), "{again:?}");
    system.shutdown().await;
}

/// No step is the cause, and the streams of others are in the steps meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_grammar_that_ends_every_process_fails_alone() {
    let (system, launcher, _) = spawn_linked(128, |_| {}).await;
    let mut streams = Vec::new();
    for salt in 0..REQUESTS {
        let (prompt, raw) = request(salt, 40, 100);
        streams.push((prompt, system.submit(raw).await.unwrap().choices.remove(0)));
    }
    let (_, deadly) = constrained(REQUESTS, 100, "deadly");
    let mut convict = system.submit(deadly).await.unwrap().choices.remove(0);
    for (prompt, stream) in streams {
        let (text, finish) = timeout(PATIENCE, collect(stream)).await.unwrap();
        assert_eq!((text, finish.as_str()), (expected_text(&prompt, 100), "length"));
    }
    let mut end = None;
    while let Some(delta) = timeout(PATIENCE, convict.next()).await.unwrap() {
        end = delta.finish;
    }
    assert_eq!(end, Some(FinishReason::Error(Failure::Quarantined)));
    assert!(launcher.processes.load(Ordering::Relaxed) > 3);
    system.shutdown().await;
}

/// Its runtime is frozen, for example: the process lives, and its link is open.
#[tokio::test(flavor = "multi_thread")]
async fn streams_survive_a_process_that_gives_no_sign_of_life() {
    let (system, launcher, _) = spawn_linked(128, impatient).await;
    let (prompt, raw) = request(1, 40, 200);
    let (stream, mut text) = begun(&system, raw).await;
    launcher.process().freeze();
    text.push_str(&timeout(PATIENCE, collect(stream)).await.unwrap().0);
    assert_eq!(text, expected_text(&prompt, 200));
    assert_eq!(system.engine_process().unwrap().ends, ["gave no sign of life"]);
    system.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_never_says_a_word_is_replaced() {
    let (system, launcher, _) = spawn_linked(128, impatient).await;
    let (prompt, raw) = request(1, 40, 100);
    let stream = system.submit(raw).await.unwrap().choices.remove(0);
    launcher.mute.store(2, Ordering::Release);
    launcher.process().end("SIGKILL");
    let (text, _) = timeout(PATIENCE, collect(stream)).await.unwrap();
    assert_eq!(text, expected_text(&prompt, 100));
    let silent = "gave no sign of life";
    assert_eq!(system.engine_process().unwrap().ends, ["ended: SIGKILL", silent, silent]);
    system.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_whose_first_process_never_says_a_word_does_not_start() {
    let (config, launcher) = launcher(128, false, impatient);
    launcher.mute.store(1, Ordering::Release);
    let loading = Loading::begin(&*launcher, config.hang_timeout).unwrap();
    let loaded = timeout(PATIENCE, loading.loaded(|_| ())).await.unwrap();
    assert_eq!(loaded.err(), Some(LoadError::Ended("gave no sign of life".to_owned())));
}

fn impatient(config: &mut SystemConfig) {
    config.hang_timeout = Duration::from_millis(500);
}
