//! Handlers and steps that hang are found in a tenth of a second. Those that lack a processor, or
//! wait for late events, are left alone. All settings are the defaults, but the upper bound is a
//! minute, so that it finds nothing here.
//!
//! The tests measure times, so they have a program of their own.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use common::{Faults, collect, expected_text, request, spawn_with};
use playhouse_actors::{fault::How, message::Role, system::System};
use tokio::{
    sync::Mutex,
    time::{sleep, timeout},
};

/// The tests run one at a time, because one of them takes all processors.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

/// The upper bound of a handler.
const BOUND: Duration = Duration::from_secs(60);
/// Longest time to find a hang: well below the bound, and far above a tenth of a second, because
/// the machine may be loaded.
const SOON: Duration = Duration::from_secs(30);
const PATIENCE: Duration = Duration::from_secs(120);
/// Time after which a blocked thread surely goes on.
const BLOCKED: Duration = Duration::from_secs(5);

async fn spawn(num_blocks: u32) -> (System, Arc<Faults>) {
    spawn_with(num_blocks, |config| config.hang_timeout = BOUND).await
}

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

fn restarts(system: &System, role: Role) -> u64 {
    let actors = system.actors();
    actors.iter().filter(|actor| actor.role == role).map(|actor| actor.restarts).sum()
}

async fn until(what: &str, holds: impl Fn() -> bool) -> Duration {
    let began = Instant::now();
    let look = async {
        while !holds() {
            sleep(Duration::from_millis(2)).await;
        }
    };
    assert!(timeout(PATIENCE, look).await.is_ok(), "{what}");
    began.elapsed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_of_any_role_that_hangs_is_replaced_soon() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let (system, _) = spawn(128).await;
    system.ready().await.unwrap();
    for role in [
        Role::Scheduler,
        Role::KvCacheManager,
        Role::StructuredOutput,
        Role::Worker,
        Role::Ledger,
        Role::Detokenizer,
        Role::OutputStreamer,
        Role::InputProcessor,
        Role::Core,
        Role::Egress,
        Role::Ingress,
    ] {
        let before = restarts(&system, role);
        system.chaos().strike(role, 0, How::Hang).unwrap();
        let took = until(role.as_str(), || restarts(&system, role) > before).await;
        assert!(took < SOON, "{} took {took:?}", role.as_str());
        streams_are_right(&system).await;
    }
    let hangs = system.chaos().hangs();
    assert_eq!((hangs.actors, hangs.false_alarms()), (11, 0), "{hangs:?}");
    system.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_handler_that_blocks_its_thread_is_replaced_soon() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let (system, faults) = spawn(128).await;
    faults.block_decoder.store(true, Ordering::Relaxed);
    streams_are_right(&system).await;
    let detokenizers = restarts(&system, Role::Detokenizer);
    assert_eq!((detokenizers, system.chaos().hangs().actors), (1, 1), "before it goes on");
    // A blocked task keeps the runtime from ending, so the test does not wait for it.
    std::mem::forget(system);
}

/// The blocked thread alone could run the ledger, because the ledger is its next task. Another
/// thread may already run the ledger at that moment, so the test tries more than once.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn an_actor_that_waits_behind_a_blocked_thread_is_replaced() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let hang_timeout = Duration::from_millis(500);
    let (system, faults) = spawn_with(128, |config| config.hang_timeout = hang_timeout).await;
    let system = Arc::new(system);
    faults.disturbed.set(Arc::clone(&system)).unwrap();
    for _ in 0..8 {
        faults.block_decoder.store(true, Ordering::Relaxed);
        streams_are_right(&system).await;
        if restarts(&system, Role::Ledger) > 0 {
            break;
        }
        sleep(BLOCKED).await;
    }
    assert!(restarts(&system, Role::Ledger) > 0);
    // A blocked task keeps the runtime from ending, so the test does not wait for it.
    std::mem::forget(system);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_that_hangs_is_done_again_soon() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let (system, faults) = spawn(128).await;
    streams_are_right(&system).await;
    let steps = faults.steps.load(Ordering::Relaxed);
    faults.hang_at.store(steps + 20, Ordering::Relaxed);
    streams_are_right(&system).await;
    let hangs = system.chaos().hangs();
    assert_eq!((hangs.steps, hangs.actors), (1, 0), "{hangs:?}, before it goes on");
    system.shutdown().await;
}

/// The manager makes its tables for all blocks when an epoch begins. That takes longer than other
/// messages, and longer with more blocks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kv_cache_of_many_blocks_raises_no_alarm() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let (system, _) = spawn(8_000_000).await;
    streams_are_right(&system).await;
    let hangs = system.chaos().hangs();
    assert_eq!(hangs.actors, 0, "{hangs:?}");
    system.shutdown().await;
}

/// Runs sixteen threads that never wait, on any number of cores.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loaded_machine_raises_no_alarm() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let is_over = Arc::<AtomicBool>::default();
    let load: Vec<_> = (0..16)
        .map(|_| {
            let is_over = Arc::clone(&is_over);
            std::thread::spawn(move || while !is_over.load(Ordering::Relaxed) {})
        })
        .collect();
    let (system, _) = spawn(128).await;
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(4) {
        streams_are_right(&system).await;
    }
    is_over.store(true, Ordering::Relaxed);
    load.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(system.chaos().hangs().false_alarms(), 0);
    system.shutdown().await;
}
