//! Actors die while streams run, and the streams do not change.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{sync::atomic::Ordering, time::Duration};

use crate::common::{collect, expected_text, request, spawn, spawn_with, wait};
use playhouse_actors::{
    message::Letter,
    supervision::directory::Slot,
    system::{System, config::DeviceMode},
};

const REQUESTS: u32 = 6;
const TOKENS: u32 = 200;

fn kill<M: Letter>(slot: &Slot<M>) {
    if let Some(address) = slot.get() {
        address.kill();
    }
}

/// Runs streams while `strike` kills actors, and compares them with a run without faults.
async fn streams_survive(strike: impl Fn(&System), strikes: usize) {
    let (system, _) = spawn(128).await;
    let mut streams = Vec::new();
    for salt in 0..REQUESTS {
        let (prompt, raw) = request(salt, 40, TOKENS);
        let mut submission = system.submit(raw).await.unwrap();
        streams.push((prompt, submission.choices.remove(0)));
    }
    let (prompt, mut first) = streams.remove(0);
    let mut text = first.next().await.unwrap().text;
    for _ in 0..strikes {
        strike(&system);
        let before = text.len();
        while text.len() == before {
            match wait::next(&mut first, &text).await {
                Some(delta) => text.push_str(&delta.text),
                None => break,
            }
        }
    }
    text.push_str(&collect(first).await.0);
    assert_eq!(text, expected_text(&prompt, TOKENS as usize));
    for (prompt, stream) in streams {
        let (text, finish) = collect(stream).await;
        assert_eq!((text, finish.as_str()), (expected_text(&prompt, TOKENS as usize), "length"));
    }
    assert!(system.drain(Duration::from_secs(60)).await, "nothing stays open");
    assert!(system.directory().restarts() > 0, "something was restarted");
    system.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_survive_the_scheduler() {
    streams_survive(|system| kill(&system.directory().core.scheduler), 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_survive_the_kv_cache_manager() {
    streams_survive(|system| kill(&system.directory().core.kv_cache_manager), 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_survive_the_worker() {
    streams_survive(|system| kill(&system.directory().core.worker), 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_survive_the_ledger() {
    streams_survive(|system| kill(&system.directory().ledger), 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_core_costs_a_token_a_request() {
    // So that no stream ends before the last strike.
    let step_time = Duration::from_millis(10);
    let (system, faults) =
        spawn_with(128, |config| config.device = DeviceMode::Task { step_time }).await;
    let mut streams = Vec::new();
    for salt in 0..REQUESTS {
        let (prompt, raw) = request(salt, 40, TOKENS);
        let mut stream = system.submit(raw).await.unwrap().choices.remove(0);
        let mut text = String::new();
        while text.is_empty() {
            text = wait::next(&mut stream, "").await.unwrap().text;
        }
        streams.push((prompt, stream, text));
    }
    let strikes: [fn(&System); 3] = [
        |system| kill(&system.directory().core.scheduler),
        |system| kill(&system.directory().core.kv_cache_manager),
        |system| kill(&system.directory().core.worker),
    ];
    for (count, strike) in (1..).zip(strikes) {
        strike(&system);
        let (_, first, text) = &mut streams[0];
        while faults.resumed.load(Ordering::Relaxed) < count * u64::from(REQUESTS) {
            let delta = wait::next(first, text).await;
            let delta = delta.unwrap_or_else(|| panic!("strike {count} hit no actor"));
            text.push_str(&delta.text);
        }
    }
    for (prompt, stream, text) in streams {
        let text = text + &collect(stream).await.0;
        assert_eq!(text, expected_text(&prompt, TOKENS as usize));
    }
    let count = faults.resumed.load(Ordering::Relaxed);
    let tokens = faults.resumed_tokens.load(Ordering::Relaxed);
    assert!(tokens <= count + u64::from(REQUESTS), "{tokens} tokens for {count} requests");
    system.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_survive_the_detokenizers() {
    streams_survive(|system| system.directory().detokenizers.iter().for_each(kill), 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_survive_the_output_streamers() {
    streams_survive(|system| system.directory().output_streamers.iter().for_each(kill), 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_input_processor_loses_no_request() {
    let (system, _) = spawn(128).await;
    for salt in 0..4 {
        system.directory().input_processors.iter().for_each(kill);
        let (prompt, raw) = request(salt, 20, 10);
        let mut submission = system.submit(raw).await.unwrap();
        assert_eq!(collect(submission.choices.remove(0)).await.0, expected_text(&prompt, 10));
    }
    system.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_in_the_model_costs_a_step() {
    let (system, faults) = spawn(128).await;
    faults.panic_at.store(12, Ordering::Relaxed);
    let (prompt, raw) = request(9, 40, 50);
    let mut submission = system.submit(raw).await.unwrap();
    assert_eq!(collect(submission.choices.remove(0)).await.0, expected_text(&prompt, 50));
    assert!(faults.executors.load(Ordering::Relaxed) >= 2, "a new executor took over");
    system.shutdown().await;
}
