//! Starts of device threads while as many as allowed were left behind and have not ended. They are
//! late, and do not hang. All times are simulated.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use playhouse_actors::{
    logic::{
        encoder_cache::EncoderBatch,
        recovery::{message_numbers::Stamp, restart::Intensity},
        request::{ids::Epoch, media::MultimodalFeature},
        scheduler::{SchedulerConfig, output::SchedulerOutput},
    },
    message::{EncoderWorkerMessage, Role, StepFailure, StepOutcome, WorkerMessage},
    shell::{encoder_worker::EncoderWorkerActor, worker::WorkerActor},
    system::{DeviceMode, SystemConfig, context::Context},
};
use ractor::{Actor, ActorStatus};
use tokio::time::{Instant, sleep};

use crate::common::{
    FakeCodec, FakeFactory, FakeGrammars, Faults, collect, expected_text, request, spawn_with,
    wait::until,
};

/// Largest number of threads that are left behind.
const MOST: u64 = 8;
/// Time of a job on a device thread. A start waits for twice as long.
const LATE: Duration = Duration::from_secs(1);

/// Returns the shared parts of a system without actors, and its faults.
fn context() -> (Arc<Context>, Arc<Faults>) {
    let mut config = SystemConfig::new(SchedulerConfig::default());
    config.device = DeviceMode::Task { step_time: LATE };
    let factory = FakeFactory::small();
    let faults = Arc::clone(&factory.faults);
    let (codec, grammars) = (Arc::new(FakeCodec::default()), Arc::new(FakeGrammars::default()));
    (Arc::new(Context::new(config, Arc::new(factory), codec, grammars)), faults)
}

/// Returns the first step of an epoch. It has no requests.
fn step() -> WorkerMessage {
    let epoch = Epoch(10);
    let step = SchedulerOutput { epoch, ..SchedulerOutput::default() };
    WorkerMessage::Execute(Stamp { epoch, number: 0 }, Arc::new(step))
}

/// Leaves a thread behind at the beginning of its step.
async fn leave_one_behind(context: &Arc<Context>) {
    let worker = WorkerActor::new(Arc::clone(context));
    let (worker, task) = Actor::spawn(None, worker, ()).await.unwrap();
    worker.cast(step()).unwrap();
    // The worker ends after this message.
    worker.drain().unwrap();
    task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_worker_whose_step_failed_waits_for_the_end_of_a_late_thread() {
    let (context, faults) = context();
    let worker = WorkerActor::new(Arc::clone(&context));
    let (worker, _) = Actor::spawn(None, worker, ()).await.unwrap();
    for _ in 0..MOST {
        leave_one_behind(&context).await;
    }
    let failure = StepFailure::Panic("planted".to_owned());
    let outcome = StepOutcome::Failed { failure, requests: Vec::new() };
    worker.cast(WorkerMessage::StepEnded { thread: 0, outcome }).unwrap();
    worker.cast(step()).unwrap();
    let steps = || faults.steps.load(Ordering::Relaxed);
    sleep(LATE * 3 / 2).await;
    assert_eq!(steps(), MOST, "the step is given when a late thread has ended");
    sleep(LATE).await;
    assert_eq!((steps(), worker.get_status()), (MOST + 1, ActorStatus::Running));
}

#[tokio::test(start_paused = true)]
async fn an_encoder_worker_waits_for_the_end_of_a_late_thread() {
    let (context, faults) = context();
    let worker = EncoderWorkerActor::new(Arc::clone(&context));
    let (worker, _) = Actor::spawn(None, worker, ()).await.unwrap();
    for _ in 0..MOST {
        leave_one_behind(&context).await;
    }
    let items = vec![MultimodalFeature::for_test("an image", 0, 4)];
    let batch = EncoderBatch { manager: 0, number: 1, items };
    worker.cast(EncoderWorkerMessage::Encode(batch)).unwrap();
    let looks = || faults.encoder_looks.load(Ordering::Relaxed);
    sleep(LATE * 3 / 2).await;
    assert_eq!(looks(), 0, "the image is given when a late thread has ended");
    sleep(LATE).await;
    assert_eq!((looks(), worker.get_status()), (1, ActorStatus::Running));
}

/// Eight steps hang in turn, and each leaves a thread behind. The ninth hangs before the first has
/// ended, so the next thread starts only then. The worker waits for that in its handler.
#[tokio::test(start_paused = true)]
async fn a_failed_step_is_reported_before_its_worker_waits_and_the_wait_is_no_hang() {
    let (step_time, deadline) = (Duration::from_secs(4), Duration::from_millis(300));
    let (system, _) = spawn_with(128, |config| {
        config.device = DeviceMode::Task { step_time };
        // No step is computed, so each of them has this limit.
        config.first_step_deadline = deadline;
    })
    .await;
    // Messages take no time, so the first epoch has begun by then.
    sleep(Duration::from_millis(50)).await;
    let (before, began) = (system.epoch().0, Instant::now());
    let mut streams = Vec::new();
    // A request that is the only one would be convicted after three failures.
    for salt in 0..6 {
        streams.push(system.submit(request(salt, 40, 3).1).await.unwrap().choices.remove(0));
    }
    // Each failed step begins an epoch.
    let num_failed = || system.epoch().0 - before;
    until("the ninth step has failed", num_failed, |count| *count > MOST).await;
    let failed = began.elapsed();
    // A wait that is not declared is a hang after a tenth of a second.
    assert!(failed + deadline < step_time, "the worker does not wait after {failed:?}");
    until("the tenth step has failed", num_failed, |count| *count > MOST + 1).await;
    let next_failed = began.elapsed();
    assert!(next_failed >= step_time + deadline, "it began too early: {next_failed:?}");
    let hangs = system.chaos().hangs();
    assert_eq!((hangs.actors, hangs.steps), (0, MOST + 2));
    let core = &system.directory().core;
    assert_eq!((core.worker.restarts(), core.supervisor.restarts()), (0, 0));
    system.shutdown().await;
}

/// Eight workers are killed in turn, and each leaves a thread behind in a step. The ninth starts
/// when the first of these steps ends.
#[tokio::test(start_paused = true)]
async fn a_restart_waits_for_the_end_of_a_late_thread() {
    // The eighth restart begins after 5.5 s, because of the pauses before restarts.
    let step_time = Duration::from_millis(6_500);
    let (system, _) = spawn_with(128, |config| {
        config.device = DeviceMode::Task { step_time };
        config.supervision = config.supervision.with(Role::Worker, Intensity::new(100, 60));
    })
    .await;
    let began = Instant::now();
    let (prompt, raw) = request(1, 40, 3);
    let stream = system.submit(raw).await.unwrap().choices.remove(0);
    let core = &system.directory().core;
    for count in 1..=MOST {
        // Messages take no time, so the device has a step by then.
        sleep(Duration::from_millis(50)).await;
        core.worker.get().unwrap().kill();
        let what = format!("the worker is replaced, time {count}");
        until(&what, || core.worker.restarts(), |restarts| *restarts == count).await;
    }
    let waited = began.elapsed();
    assert!(waited >= step_time, "the last restart began after {waited:?}");
    assert_eq!(core.supervisor.restarts(), 0, "no start failed");
    assert_eq!(system.breaker_reason(), None);
    assert_eq!(collect(stream).await, (expected_text(&prompt, 3), "length".to_owned()));
    system.shutdown().await;
}
