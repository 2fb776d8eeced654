//! Steps that hang, run out of memory, or fail because of one request. A handler that blocks its
//! thread, and a core that dies too often.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

use std::{sync::atomic::Ordering, time::Duration};

use crate::common::{
    collect, expected_text, request, spawn_with,
    wait::{next, until},
};
use playhouse_actors::{
    error::RequestError,
    fault::How,
    logic::recovery::restart::Intensity,
    message::{LedgerMessage, Role, input_processor::Prompt},
    system::{DeviceMode, Health, PauseMode, Supervision, System, SystemConfig, Unhealthy},
};
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(60);

fn impatient(config: &mut SystemConfig) {
    config.tick = Duration::from_millis(10);
    config.egress_timeout = Duration::from_millis(200);
    config.hang_timeout = Duration::from_millis(300);
    config.min_step_deadline = Duration::from_millis(300);
    config.first_step_deadline = Duration::from_millis(300);
}

/// Checks that six streams of 100 tokens are those of a run without faults.
async fn streams_are_right(system: &System) {
    let mut streams = Vec::new();
    for salt in 0..6 {
        let (prompt, raw) = request(salt, 40, 100);
        streams.push((prompt, system.submit(raw).await.unwrap().choices.remove(0)));
    }
    for (prompt, stream) in streams {
        let (text, finish) = timeout(PATIENCE, collect(stream)).await.unwrap();
        assert_eq!((text, finish.as_str()), (expected_text(&prompt, 100), "length"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_hangs_is_done_again_on_another_thread() {
    let (system, faults) = spawn_with(128, impatient).await;
    faults.hang_at.store(20, Ordering::Relaxed);
    streams_are_right(&system).await;
    assert_eq!(system.directory().core.worker.restarts(), 0, "it costs a thread, not an actor");
    system.shutdown().await;
}

/// Runs in simulated time. When an epoch ends, the device has two steps whose results are no longer
/// awaited.
#[tokio::test(start_paused = true)]
async fn a_step_gets_its_full_time_after_the_steps_before_it() {
    let step_time = Duration::from_millis(200);
    let (system, faults) = spawn_with(128, |config| {
        impatient(config);
        config.device = DeviceMode::Task { step_time };
        config.scheduler.async_scheduling = true;
    })
    .await;
    let (prompt, raw) = request(1, 40, 30);
    let mut stream = system.submit(raw).await.unwrap().choices.remove(0);
    let mut text = String::new();
    while text.len() < expected_text(&prompt, 10).len() {
        let delta = next(&mut stream, &text).await.unwrap();
        text.push_str(&delta.text);
    }
    tokio::time::sleep(step_time / 4).await;
    let before = system.epoch();
    let what = "a message that was never sent";
    system.directory().ledger.cast(LedgerMessage::Lost { epoch: before, what: what.into() });
    let (rest, finish) = timeout(PATIENCE, collect(stream)).await.unwrap();
    text.push_str(&rest);
    assert_eq!((text, finish.as_str()), (expected_text(&prompt, 30), "length"));
    assert_eq!(system.epoch().0, before.0 + 1, "no step took too long");
    assert_eq!(faults.executors.load(Ordering::Relaxed), 2, "one an epoch");
    system.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_handler_that_blocks_its_thread_is_abandoned() {
    let (system, faults) = spawn_with(128, impatient).await;
    faults.block_decoder.store(true, Ordering::Relaxed);
    streams_are_right(&system).await;
    let restarts: u64 = system.directory().detokenizers.iter().map(|slot| slot.restarts()).sum();
    assert_eq!(restarts, 1);
    // A blocked task keeps the runtime from ending, so the test does not wait for it.
    std::mem::forget(system);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_without_memory_is_done_in_parts() {
    let (system, faults) = spawn_with(128, impatient).await;
    faults.memory.store(20, Ordering::Relaxed);
    streams_are_right(&system).await;
    system.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_makes_steps_fail_fails_alone_and_is_refused_next_time() {
    let (system, faults) = spawn_with(128, impatient).await;
    faults.poison.store(991, Ordering::Relaxed);
    let (_, mut poison) = request(3, 40, 100);
    poison.prompt = Prompt::Tokens(vec![5, 991, 7]);
    let mut convict = system.submit(poison.clone()).await.unwrap().choices.remove(0);
    streams_are_right(&system).await;
    let mut end = None;
    while let Some(delta) = timeout(PATIENCE, convict.next()).await.unwrap() {
        end = delta.finish;
    }
    let end = format!("{end:?}");
    assert!(end.contains("Quarantined"), "{end}");
    let again = system.submit(poison).await;
    assert!(matches!(again, Err(RequestError::Quarantined { .. })), "{again:?}");
    assert_eq!(system.directory().core.worker.restarts(), 0);
    system.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_breaker_opens_when_too_many_die_and_closes_after_a_canary() {
    let (system, _) = spawn_with(128, |config| {
        impatient(config);
        config.supervision = config.supervision.with(Role::Scheduler, Intensity::new(1, 60));
    })
    .await;
    let (prompt, raw) = request(1, 40, 400);
    let stream = system.submit(raw).await.unwrap().choices.remove(0);
    for _ in 0..2 {
        let before = system.directory().core.scheduler.restarts();
        system.chaos().strike(Role::Scheduler, 0, How::Kill).unwrap();
        let restarts = || system.directory().core.scheduler.restarts();
        until("the scheduler is replaced", restarts, |count| *count > before).await;
    }
    assert_eq!(system.health(), Health::Recovering);
    let refused = system.submit(request(2, 40, 1).1).await;
    assert!(matches!(refused, Err(RequestError::Recovering { .. })), "{refused:?}");
    let (text, _) = timeout(PATIENCE, collect(stream)).await.unwrap();
    assert_eq!(text, expected_text(&prompt, 400), "accepted requests continue");
    let closed = async {
        while system.health() != Health::Ready {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, closed).await.unwrap();
    streams_are_right(&system).await;
    system.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_root_that_gives_up_is_dead() {
    let (system, _) = spawn_with(128, |config| {
        config.supervision = Supervision::uniform(Intensity::new(1, 60));
        config.supervision.fruitless_rebuilds = 1;
    })
    .await;
    system.pause(PauseMode::Keep).await.unwrap();
    let mut held = system.submit(request(1, 40, 5).1).await.unwrap().choices.remove(0);
    let died = async {
        while system.health() != Health::Dead {
            let _ = system.chaos().strike(Role::Ledger, 0, How::Kill);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, died).await.unwrap();
    // A client that waits for output gets an end.
    let last = async {
        loop {
            let delta = held.next().await.unwrap();
            if delta.finish.is_some() {
                break delta.finish;
            }
        }
    };
    let last = timeout(PATIENCE, last).await.unwrap();
    assert!(format!("{last:?}").contains("EngineStopped"), "{last:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_read_is_cut_off() {
    let (system, faults) = spawn_with(128, |config| {
        impatient(config);
        config.reader_timeout = Duration::from_millis(100);
    })
    .await;
    // So that the request does not end before.
    faults.step_ms.store(20, Ordering::Relaxed);
    let mut idle = system.submit(request(1, 40, 400).1).await.unwrap().choices.remove(0);
    let cut_off = async {
        while system.open_requests() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, cut_off).await.expect("nothing is kept for it");
    let last = idle.next().await.unwrap();
    assert!(format!("{:?}", last.finish).contains("ReaderStalled"));
    assert!(idle.next().await.is_none());
    system.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_is_honoured_before_prefill() {
    let (system, _) = spawn_with(128, impatient).await;
    system.set_pause(playhouse_actors::logic::scheduler::PauseState::PausedAll);
    let (_, mut raw) = request(1, 40, 4);
    raw.timeout = Some(Duration::from_millis(20));
    let stream = system.submit(raw).await.unwrap().choices.remove(0);
    let (text, finish) = timeout(PATIENCE, collect(stream)).await.unwrap();
    assert_eq!((text.as_str(), finish.as_str()), ("", "error"));
    system.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_without_finite_logits_is_unhealthy_until_it_has_some() {
    let (system, faults) = spawn_with(128, impatient).await;
    streams_are_right(&system).await;
    let becomes = async |health| {
        let look = async {
            while system.health() != health {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        timeout(PATIENCE, look).await.unwrap();
    };
    faults.has_no_numbers.store(true, Ordering::Relaxed);
    for salt in [1, 1, 1, 2] {
        let stream = system.submit(request(salt, 40, 5).1).await.unwrap().choices.remove(0);
        let (_, finish) = timeout(PATIENCE, collect(stream)).await.unwrap();
        assert_eq!((finish.as_str(), system.health()), ("error", Health::Ready));
    }
    let stream = system.submit(request(3, 40, 5).1).await.unwrap().choices.remove(0);
    assert_eq!(timeout(PATIENCE, collect(stream)).await.unwrap().1, "error");
    becomes(Health::Unhealthy(Unhealthy::NonFiniteLogits)).await;
    let refused = system.submit(request(4, 40, 1).1).await;
    assert!(matches!(refused, Err(RequestError::Recovering { .. })), "{refused:?}");
    faults.has_no_numbers.store(false, Ordering::Relaxed);
    becomes(Health::Ready).await;
    streams_are_right(&system).await;
    system.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn non_finite_logits_of_some_requests_convict_no_model_that_computes_others() {
    let (system, faults) = spawn_with(128, impatient).await;
    for salt in 0..9 {
        faults.has_no_numbers.store(true, Ordering::Relaxed);
        let stream = system.submit(request(salt, 40, 5).1).await.unwrap().choices.remove(0);
        assert_eq!(timeout(PATIENCE, collect(stream)).await.unwrap().1, "error");
        faults.has_no_numbers.store(false, Ordering::Relaxed);
        streams_are_right(&system).await;
    }
    assert_eq!(system.health(), Health::Ready);
    system.shutdown().await;
}
