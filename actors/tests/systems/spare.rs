//! A process that has loaded its model and waits until it is needed.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{sync::atomic::Ordering, time::Duration};

use playhouse_actors::system::System;

use crate::{
    common::{collect, expected_text, linked::spawn_with_spare, request, wait::until},
    engine_process::{begun, go_on},
};

/// Waits until the process with this number serves.
async fn until_serves(system: &System, number: u32) {
    let process = || system.engine_process().unwrap();
    let what = format!("process {number} serves");
    until(&what, process, |process| process.pid == Some(number)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spare_process_takes_over() {
    let (system, launcher, _) = spawn_with_spare(128, true, |_| {}).await;
    let (first, spare) = (launcher.numbered(1).await, launcher.numbered(2).await);
    let (prompt, raw) = request(1, 40, 100);
    let (mut stream, mut text) = begun(&system, raw).await;
    first.end("SIGKILL");
    go_on(&mut stream, &mut text).await;
    until_serves(&system, spare.number).await;
    text.push_str(&collect(stream).await.0);
    assert_eq!(text, expected_text(&prompt, 100));
    // A spare process that ends is replaced, and the one that serves goes on.
    launcher.numbered(3).await.end("SIGSEGV");
    launcher.numbered(4).await;
    assert_eq!(system.engine_process().unwrap().pid, Some(spare.number));
    system.shutdown().await;
}

/// The next spare process waits with its load. One that is needed before is loaded at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_spare_process_that_waits_is_loaded_when_it_is_needed() {
    let (system, launcher, _) = spawn_with_spare(128, true, |_| {}).await;
    let (first, spare) = (launcher.numbered(1).await, launcher.numbered(2).await);
    launcher.spare_pause_ms.store(3_600_000, Ordering::Relaxed);
    let (prompt, raw) = request(1, 40, 100);
    let (mut stream, mut text) = begun(&system, raw).await;
    first.end("SIGKILL");
    go_on(&mut stream, &mut text).await;
    until_serves(&system, spare.number).await;
    assert_eq!(launcher.processes.load(Ordering::Relaxed), 2, "the third waits");
    spare.end("SIGKILL");
    text.push_str(&collect(stream).await.0);
    assert_eq!(text, expected_text(&prompt, 100));
    // The stream may have ended before the process.
    launcher.numbered(3).await;
    assert_eq!(launcher.processes.load(Ordering::Relaxed), 3);
    system.shutdown().await;
}

/// A kill of all processes at once counts as one death of the process that served.
#[tokio::test(flavor = "multi_thread")]
async fn a_spare_process_that_has_just_ended_is_loaded_anew_at_once() {
    let (system, launcher, _) = spawn_with_spare(128, true, |_| {}).await;
    let (first, spare) = (launcher.numbered(1).await, launcher.numbered(2).await);
    let (prompt, raw) = request(1, 40, 100);
    let (stream, mut text) = begun(&system, raw).await;
    spare.end("SIGKILL");
    // The end is noticed, and the next spare process is not loaded yet.
    tokio::time::sleep(Duration::from_millis(200)).await;
    first.end("SIGKILL");
    text.push_str(&collect(stream).await.0);
    assert_eq!(text, expected_text(&prompt, 100));
    let process = || system.engine_process().unwrap();
    until("the process is replaced", process, |process| process.num_starts >= 2).await;
    assert_eq!(system.engine_process().unwrap().ends, ["ended: SIGKILL"]);
    system.shutdown().await;
}

/// The vocabulary for grammars takes long, and so would the streams that need it.
#[tokio::test(flavor = "multi_thread")]
async fn a_spare_process_that_waits_prepares_for_grammars() {
    let (system, launcher, faults) = spawn_with_spare(128, true, |_| {}).await;
    launcher.numbered(2).await;
    let preparations = || faults.preparations.load(Ordering::Relaxed);
    until("the spare process is prepared", preparations, |count| *count > 0).await;
    assert_eq!(faults.preparations.load(Ordering::Relaxed), 1, "the first one serves at once");
    system.shutdown().await;
}
