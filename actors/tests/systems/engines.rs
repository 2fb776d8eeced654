//! Several engines, each in a process of its own. They die while streams run.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use playhouse_actors::{
    error::RequestError,
    fault::How,
    logic::{
        request::{EngineRequest, FinishReason, failure::Failure, ids::EngineIndex, ids::TokenId},
        scheduler::PauseState,
    },
    message::{
        Role,
        input_processor::{Prompt, RawRequest},
    },
    system::{ChoiceStream, DrainError, EngineState, Health, PauseMode, System},
};
use tokio::time::{sleep, timeout};

use crate::common::{
    collect, constrained, expected_text,
    linked::{FakeLauncher, spawn_engines, spawn_engines_with, spawn_linked},
    request,
};

const PATIENCE: Duration = Duration::from_secs(60);
const FIRST: EngineIndex = EngineIndex(0);
const SECOND: EngineIndex = EngineIndex(1);
const NEVER_AGAIN: u64 = 1 << 40;

/// A stream beside its prompt and the number of its tokens.
type Running = (Vec<TokenId>, u32, ChoiceStream);

async fn two_engines() -> (System, Vec<Arc<FakeLauncher>>) {
    spawn_engines(2, 256, |_| {}).await
}

/// Makes steps slow, so that no stream of 200 tokens ends within two seconds.
fn slow_down(launchers: &[Arc<FakeLauncher>]) {
    launchers.iter().for_each(|launcher| launcher.faults().step_ms.store(10, Ordering::Relaxed));
}

/// Begins `count` streams of several kinds.
async fn streams(system: &System, count: u32, tokens: u32) -> Vec<Running> {
    let mut streams = Vec::new();
    for salt in 0..count {
        let (prompt, raw) = match salt % 4 {
            3 => constrained(salt, tokens, "[0-9]+"),
            _ => request(salt, 20 + salt as usize, tokens),
        };
        let stream = system.submit(raw).await.unwrap().choices.remove(0);
        streams.push((prompt, tokens, stream));
    }
    streams
}

/// Reads the streams to their ends and compares them with those of a run without faults.
async fn end_as_without_faults(streams: Vec<Running>) {
    for (prompt, tokens, stream) in streams {
        let (text, finish) = timeout(PATIENCE, collect(stream)).await.unwrap();
        assert_eq!(text, expected_text(&prompt, tokens as usize));
        assert_eq!(finish, "length");
    }
}

fn loads(system: &System) -> Vec<usize> {
    system.engines().iter().map(|engine| engine.num_requests).collect()
}

async fn until(system: &System, is_so: impl Fn(&System) -> bool) {
    let wait = async {
        while !is_so(system) {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, wait).await.unwrap();
}

fn starts(system: &System, engine: EngineIndex) -> u64 {
    system.engines()[engine.0].process.num_starts
}

fn is_restarting(system: &System, engine: EngineIndex) -> bool {
    system.engines()[engine.0].state == EngineState::Restarting
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_spread_over_the_engines() {
    let (system, launchers) = two_engines().await;
    slow_down(&launchers);
    let streams = streams(&system, 8, 200).await;
    assert_eq!(launchers.iter().map(|l| l.processes.load(Ordering::Relaxed)).max(), Some(1));
    assert!(loads(&system).iter().all(|load| *load > 0), "{:?}", loads(&system));
    end_as_without_faults(streams).await;
    assert_eq!(system.status().await.unwrap().scheduler.num_running, 0);
    system.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_survive_engines_that_die_in_turns() {
    let (system, launchers) = two_engines().await;
    let streams = streams(&system, 32, 150).await;
    let kill = async {
        // The pauses differ, so the kills meet other steps in each run.
        for (turn, pause_ms) in [3, 17, 1, 40, 9, 26].into_iter().enumerate() {
            sleep(Duration::from_millis(pause_ms)).await;
            launchers[turn % 2].process().end("SIGKILL");
        }
    };
    let ((), ()) = tokio::join!(kill, end_as_without_faults(streams));
    assert!(system.engines().iter().any(|engine| engine.process.num_starts > 1));
    assert!(system.drain(PATIENCE).await, "nothing stays open");
    system.shutdown().await;
}

/// The process of the engine never comes back, so its streams go on in the other one or not at all.
#[tokio::test(flavor = "multi_thread")]
async fn streams_of_a_dead_engine_go_on_in_the_living_one() {
    for dead in [FIRST, SECOND] {
        let (system, launchers) = two_engines().await;
        slow_down(&launchers);
        let mut streams = streams(&system, 12, 200).await;
        assert!(loads(&system)[dead.0] > 0);
        launchers[dead.0].broken.store(NEVER_AGAIN, Ordering::Release);
        launchers[dead.0].process().end("SIGKILL");
        until(&system, |system| loads(system)[dead.0] == 0).await;
        until(&system, |system| is_restarting(system, dead)).await;
        // One engine lives, although it may be late with a step on a busy machine.
        until(&system, |system| system.health() == Health::Ready).await;
        assert!(is_restarting(&system, dead));
        // New requests go to the living one.
        let (prompt, raw) = request(90, 30, 40);
        streams.push((prompt, 40, system.submit(raw).await.unwrap().choices.remove(0)));
        assert_eq!(loads(&system)[dead.0], 0);
        end_as_without_faults(streams).await;
        let living = &system.engines()[1 - dead.0];
        assert_eq!((living.state, living.process.num_starts), (EngineState::Serving, 1));
        system.shutdown().await;
    }
}

/// Its successor has its KV cache. The other engine would compute all tokens again.
#[tokio::test(flavor = "multi_thread")]
async fn the_requests_of_a_dead_engine_wait_for_its_spare_process() {
    let (system, launchers) = spawn_engines_with(&[true, false], 256, |_| {}).await;
    slow_down(&launchers);
    let mut running = streams(&system, 12, 200).await;
    let before = loads(&system);
    assert!(before.iter().all(|load| *load > 0), "{before:?}");
    launchers[0].numbered(1).await.end("SIGSEGV");
    until(&system, |system| is_restarting(system, FIRST) || starts(system, FIRST) == 2).await;
    let (prompt, raw) = request(90, 30, 200);
    running.push((prompt, 200, system.submit(raw).await.unwrap().choices.remove(0)));
    until(&system, |system| starts(system, FIRST) == 2 && !is_restarting(system, FIRST)).await;
    assert_eq!(loads(&system)[0] + loads(&system)[1], 13, "they run");
    assert!(loads(&system)[0] >= before[0], "{before:?} before, now {:?}", loads(&system));
    // The other engine has no spare process, so its requests go on in the first.
    launchers[1].broken.store(NEVER_AGAIN, Ordering::Release);
    launchers[1].process().end("SIGKILL");
    until(&system, |system| loads(system)[1] == 0).await;
    end_as_without_faults(running).await;
    assert_eq!(starts(&system, FIRST), 2);
    system.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_do_not_wait_for_a_spare_process_that_is_not_ready() {
    let (system, launchers) = spawn_engines_with(&[true, false], 256, |_| {}).await;
    slow_down(&launchers);
    let running = streams(&system, 12, 200).await;
    launchers[0].broken.store(NEVER_AGAIN, Ordering::Release);
    launchers[0].numbered(2).await.end("SIGKILL");
    until(&system, |system| !system.engines()[0].process.is_spare_ready).await;
    launchers[0].numbered(1).await.end("SIGKILL");
    until(&system, |system| loads(system)[0] == 0).await;
    end_as_without_faults(running).await;
    assert_eq!(starts(&system, FIRST), 1);
    system.shutdown().await;
}

/// It is not attached before the end of the process before is known.
#[tokio::test(flavor = "multi_thread")]
async fn requests_do_not_wait_long_for_a_spare_process() {
    let (system, launchers) = spawn_engines_with(&[true, false], 256, |_| {}).await;
    launchers.iter().for_each(|launcher| launcher.faults().step_ms.store(5, Ordering::Relaxed));
    let running = streams(&system, 12, 200).await;
    launchers[0].hides_ends.store(true, Ordering::Release);
    launchers[0].numbered(1).await.end("SIGKILL");
    // Those of the other engine have ended by then, so it has the moved ones.
    until(&system, |system| loads(system)[0] == 0 && loads(system)[1] > 0).await;
    end_as_without_faults(running).await;
    system.shutdown().await;
}

/// They would wait for a second. On a loaded machine the move itself may take as long, but not each
/// time.
#[tokio::test(flavor = "multi_thread")]
async fn requests_of_an_engine_that_is_to_be_empty_wait_for_no_spare_process() {
    for _ in 0..5 {
        if requests_move_at_once().await {
            return;
        }
    }
    panic!("they waited each time");
}

/// Empties an engine whose process has ended. Returns whether its requests waited before, and moved
/// at once then.
async fn requests_move_at_once() -> bool {
    let (system, launchers) = spawn_engines_with(&[true, true], 256, |_| {}).await;
    slow_down(&launchers);
    let running = streams(&system, 12, 200).await;
    launchers[0].hides_ends.store(true, Ordering::Release);
    launchers[0].numbered(1).await.end("SIGKILL");
    until(&system, |system| is_restarting(system, FIRST)).await;
    let do_wait = loads(&system)[0] > 0;
    let drained = Instant::now();
    system.drain_engine(FIRST, true).unwrap();
    until(&system, |system| loads(system)[0] == 0).await;
    let is_soon = drained.elapsed() < Duration::from_millis(900);
    end_as_without_faults(running).await;
    launchers[0].hides_ends.store(false, Ordering::Release);
    until(&system, |system| system.engines()[0].state == EngineState::Drained).await;
    system.shutdown().await;
    do_wait && is_soon
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_wait_while_no_engine_lives() {
    let (system, launchers) = two_engines().await;
    let mut streams = streams(&system, 6, 100).await;
    launchers[0].broken.store(NEVER_AGAIN, Ordering::Release);
    launchers[1].broken.store(2, Ordering::Release);
    launchers.iter().for_each(|launcher| launcher.process().end("SIGKILL"));
    let (prompt, raw) = request(80, 40, 20);
    streams.push((prompt, 20, system.submit(raw).await.unwrap().choices.remove(0)));
    end_as_without_faults(streams).await;
    until(&system, |system| !is_restarting(system, SECOND)).await;
    system.shutdown().await;
}

/// An engine that dies too often does not take the others with it.
#[tokio::test(flavor = "multi_thread")]
async fn each_engine_has_a_restart_budget_of_its_own() {
    let (system, launchers) = two_engines().await;
    for _ in 0..3 {
        let process = launchers[0].process();
        process.end("SIGKILL");
        until(&system, |_| launchers[0].process().number > process.number).await;
        until(&system, |system| !is_restarting(system, FIRST)).await;
    }
    launchers[0].process().end("SIGKILL");
    until(&system, |system| is_restarting(system, FIRST)).await;
    end_as_without_faults(streams(&system, 8, 60).await).await;
    assert_eq!(system.health(), Health::Ready, "the breaker is closed");
    assert_eq!(launchers[1].processes.load(Ordering::Relaxed), 1);
    system.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_engine_gets_no_new_requests() {
    let (system, launchers) = two_engines().await;
    slow_down(&launchers);
    let running = streams(&system, 6, 200).await;
    system.drain_engine(FIRST, false).unwrap();
    let before = loads(&system)[0];
    let new = streams(&system, 6, 50).await;
    assert!(loads(&system)[0] <= before, "{:?}", loads(&system));
    let last = system.drain_engine(SECOND, false);
    assert_eq!(last, Err(DrainError::LastEngine { engine: SECOND }));
    let none = system.drain_engine(EngineIndex(2), false);
    assert_eq!(none, Err(DrainError::NoSuchEngine { engine: EngineIndex(2), num_engines: 2 }));
    end_as_without_faults(running).await;
    end_as_without_faults(new).await;
    assert_eq!(system.engines()[0].state, EngineState::Drained);
    system.undrain_engine(FIRST).unwrap();
    let streams = streams(&system, 6, 50).await;
    assert!(loads(&system)[0] > 0);
    end_as_without_faults(streams).await;
    system.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_requests_of_a_drained_engine_can_move() {
    let (system, launchers) = two_engines().await;
    slow_down(&launchers);
    let running = streams(&system, 8, 200).await;
    assert!(loads(&system)[1] > 0);
    system.drain_engine(SECOND, true).unwrap();
    until(&system, |system| system.engines()[1].state == EngineState::Drained).await;
    assert_eq!(launchers[1].processes.load(Ordering::Relaxed), 1, "it lives");
    end_as_without_faults(running).await;
    system.shutdown().await;
}

/// A drain outlives the process, and the requests of a drained engine that dies go on elsewhere.
#[tokio::test(flavor = "multi_thread")]
async fn a_drained_engine_may_die() {
    let (system, launchers) = two_engines().await;
    let running = streams(&system, 8, 200).await;
    system.drain_engine(FIRST, false).unwrap();
    launchers[0].process().end("SIGKILL");
    end_as_without_faults(running).await;
    until(&system, |system| system.engines()[0].state == EngineState::Drained).await;
    system.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn there_is_nothing_to_drain_with_one_engine() {
    let (system, _, _) = spawn_linked(64, |_| {}).await;
    let last = system.drain_engine(FIRST, false);
    assert_eq!(last, Err(DrainError::LastEngine { engine: FIRST }));
    system.shutdown().await;
}

/// Each engine ends in a step with this request.
#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_ends_every_engine_fails_alone() {
    let (system, launchers) = two_engines().await;
    for launcher in &launchers {
        launcher.faults().deadly.store(991, Ordering::Relaxed);
    }
    let streams = streams(&system, 6, 100).await;
    let (_, mut deadly) = request(3, 40, 100);
    deadly.prompt = Prompt::Tokens(vec![5, 991, 7]);
    let mut convict = system.submit(deadly.clone()).await.unwrap().choices.remove(0);
    end_as_without_faults(streams).await;
    let mut end = None;
    while let Some(delta) = timeout(PATIENCE, convict.next()).await.unwrap() {
        end = delta.finish;
    }
    assert_eq!(end, Some(FinishReason::Error(Failure::Quarantined)));
    until(&system, |system| system.health() == Health::Ready).await;
    let again = system.submit(deadly).await;
    assert!(matches!(again, Err(RequestError::Quarantined { .. })), "{again:?}");
    system.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_survive_the_actors_around_the_engines() {
    let (system, _) = two_engines().await;
    let streams = streams(&system, 8, 300).await;
    let strike = async {
        for (role, index) in
            [(Role::Ledger, 0), (Role::Scheduler, 1), (Role::Core, 1), (Role::Worker, 0)]
        {
            sleep(Duration::from_millis(10)).await;
            // An actor that is being replaced cannot be struck.
            let _ = system.chaos().strike(role, index, How::Kill);
        }
    };
    let ((), ()) = tokio::join!(strike, end_as_without_faults(streams));
    assert!(system.directory().restarts() > 0);
    system.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_reaches_all_engines() {
    let (system, launchers) = two_engines().await;
    slow_down(&launchers);
    let streams = streams(&system, 8, 300).await;
    let has_begun =
        |launcher: &Arc<FakeLauncher>| launcher.faults().steps.load(Ordering::Relaxed) > 0;
    until(&system, |_| launchers.iter().all(has_begun)).await;
    system.pause(PauseMode::Keep).await.unwrap();
    assert_eq!(system.pause_state(), PauseState::PausedAll);
    // An actor that is late with its answer is missing in a view.
    let looks = async {
        loop {
            let view = system.look().await;
            let requests = view.cores.iter().filter_map(|core| {
                let scheduler = core.scheduler.as_ref().ok()?;
                Some(scheduler.running.len() + scheduler.waiting.len())
            });
            let requests: Vec<_> = requests.collect();
            if (requests.len(), requests.iter().sum::<usize>()) == (2, 8)
                && requests.iter().all(|requests| *requests > 0)
                && view.cores.iter().all(|core| core.kv_cache.as_ref().is_ok_and(Option::is_some))
            {
                return view;
            }
        }
    };
    let view = timeout(PATIENCE, looks).await.unwrap();
    assert_eq!(view.actors.iter().filter(|actor| actor.role == Role::Scheduler).count(), 2);
    assert!(system.reset_prefix_cache(true).await.unwrap());
    system.reset_encoder_cache().await.unwrap();
    system.sleep(PauseMode::Keep).await.unwrap();
    let releases =
        |launcher: &Arc<FakeLauncher>| launcher.faults().releases.load(Ordering::Relaxed);
    assert_eq!(launchers.iter().map(releases).collect::<Vec<_>>(), [1, 1]);
    launchers.iter().for_each(|launcher| launcher.faults().step_ms.store(0, Ordering::Relaxed));
    system.wake_up().await.unwrap();
    end_as_without_faults(streams).await;
    system.shutdown().await;
}

/// Runs a request, and returns its number of cached tokens.
async fn cached(system: &System, raw: &RawRequest) -> usize {
    let mut stream = system.submit(raw.clone()).await.unwrap().choices.remove(0);
    let mut num_cached = None;
    while let Some(delta) = timeout(PATIENCE, stream.next()).await.unwrap() {
        num_cached = num_cached.or(delta.num_cached_tokens);
    }
    num_cached.unwrap()
}

/// Its next process adopts the content of the one before.
#[tokio::test(flavor = "multi_thread")]
async fn the_cache_of_an_engine_that_is_being_replaced_is_reset_too() {
    let (system, launchers) = two_engines().await;
    system.drain_engine(SECOND, false).unwrap();
    let (_, raw) = request(1, 40, 10);
    assert_eq!(cached(&system, &raw).await, 0);
    assert!(cached(&system, &raw).await > 0);
    for is_reset in [false, true] {
        // The next process waits for this end.
        launchers[0].hides_ends.store(true, Ordering::Release);
        launchers[0].process().end("SIGKILL");
        until(&system, |system| is_restarting(system, FIRST)).await;
        if is_reset {
            assert!(system.reset_prefix_cache(false).await.unwrap());
        }
        launchers[0].hides_ends.store(false, Ordering::Release);
        until(&system, |system| !is_restarting(system, FIRST)).await;
        // The process may still be about to do it.
        sleep(Duration::from_millis(100)).await;
        assert_eq!(cached(&system, &raw).await > 0, !is_reset);
    }
    system.shutdown().await;
}

/// A process that may not have ended keeps its cache, and the process after the next adopts it.
#[tokio::test(flavor = "multi_thread")]
async fn a_reset_reaches_the_cache_that_a_later_process_adopts() {
    let (system, launchers) = two_engines().await;
    system.drain_engine(SECOND, false).unwrap();
    let (_, raw) = request(1, 40, 10);
    assert_eq!(cached(&system, &raw).await, 0);
    launchers[0].hides_ends.store(true, Ordering::Release);
    launchers[0].process().end("SIGKILL");
    until(&system, |system| starts(system, FIRST) == 2).await;
    launchers[0].hides_ends.store(false, Ordering::Release);
    assert_eq!(cached(&system, &raw).await, 0, "it has a cache of its own");
    assert!(system.reset_prefix_cache(false).await.unwrap());
    launchers[0].process().end("SIGKILL");
    until(&system, |system| starts(system, FIRST) == 3).await;
    // The process may still be about to do it.
    sleep(Duration::from_millis(100)).await;
    assert_eq!(cached(&system, &raw).await, 0);
    system.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_an_earlier_process_are_spread_over_the_engines() {
    let (system, launchers) = two_engines().await;
    slow_down(&launchers);
    let prompt = |id: u64| (0..40).map(|token| token + id as TokenId).collect::<Vec<_>>();
    let mut streams = Vec::new();
    for id in 1_000..1_006 {
        let mut request = EngineRequest::for_test(id, prompt(id));
        request.sampling_mut().max_tokens = 200;
        request.sampling_mut().temperature = 0.0;
        let stream = system.restore(vec![Arc::new(request)]).await.unwrap().remove(0);
        streams.push((prompt(id), 200, stream));
    }
    assert!(loads(&system).iter().all(|load| *load > 0), "{:?}", loads(&system));
    launchers[1].process().end("SIGKILL");
    end_as_without_faults(streams).await;
    system.shutdown().await;
}
