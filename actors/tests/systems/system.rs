//! A whole actor system with a fake model: from requests to streams.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use crate::common::{collect, expected_text, request, spawn};
use playhouse_actors::{error::RequestError, system::Health};

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_what_the_model_says() {
    let (system, _) = spawn(64).await;
    let (prompt, raw) = request(1, 20, 30);
    let mut submission = system.submit(raw).await.unwrap();
    let (text, finish) = collect(submission.choices.remove(0)).await;
    assert_eq!((text, finish.as_str()), (expected_text(&prompt, 30), "length"));
    assert!(system.drain(Duration::from_secs(60)).await, "nothing stays open");
    system.shutdown().await;
    assert_eq!(system.health(), Health::Dead);
}

#[tokio::test(flavor = "multi_thread")]
async fn many_at_once_in_a_cache_that_holds_few_of_them() {
    let (system, _) = spawn(24).await;
    let mut streams = Vec::new();
    for salt in 0..12 {
        let (prompt, raw) = request(salt, 30 + salt as usize, 60);
        let mut submission = system.submit(raw).await.unwrap();
        streams.push((prompt, submission.choices.remove(0)));
    }
    for (prompt, stream) in streams {
        assert_eq!(collect(stream).await.0, expected_text(&prompt, 60));
    }
    system.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_string_ends_a_stream_across_tokens() {
    let (system, _) = spawn(64).await;
    let (prompt, mut raw) = request(5, 10, 50);
    let full = expected_text(&prompt, 50);
    let border = full.match_indices("><").nth(6).unwrap().0;
    raw.params.stop = vec![full[border - 2..border + 4].to_owned()];
    let found = full.find(&raw.params.stop[0]).unwrap();
    let mut submission = system.submit(raw).await.unwrap();
    let (text, finish) = collect(submission.choices.remove(0)).await;
    assert_eq!((text.as_str(), finish.as_str()), (&full[..found], "stop"));
    assert!(system.drain(Duration::from_secs(60)).await);
    system.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_frees_its_request() {
    let (system, _) = spawn(64).await;
    let (_, raw) = request(1, 20, 400);
    let submission = system.submit(raw).await.unwrap();
    drop(submission);
    assert!(system.drain(Duration::from_secs(60)).await, "the request ended without its client");
    let status = system.status().await.unwrap();
    assert_eq!((status.scheduler.num_running, status.scheduler.num_waiting), (0, 0));
    system.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_served_is_refused_at_once() {
    let (system, _) = spawn(8).await;
    let (_, too_long) = request(1, 200, 10);
    let error = system.submit(too_long).await.unwrap_err();
    assert!(matches!(error, RequestError::Unservable { total_blocks: 7, .. }), "{error}");
    let (_, beyond_the_context) = request(1, 20, 600);
    let error = system.submit(beyond_the_context).await.unwrap_err();
    assert!(matches!(error, RequestError::ContextLength { .. }), "{error}");
    system.begin_drain();
    let (_, late) = request(1, 20, 10);
    assert_eq!(system.submit(late).await.unwrap_err(), RequestError::Draining);
    system.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_systems_in_one_process_do_not_meet() {
    let (a, _) = spawn(64).await;
    let (b, _) = spawn(64).await;
    let (prompt, raw) = request(3, 20, 20);
    let mut first = a.submit(raw.clone()).await.unwrap();
    let mut second = b.submit(raw).await.unwrap();
    a.shutdown().await;
    drop(first.choices.remove(0));
    assert_eq!(collect(second.choices.remove(0)).await.0, expected_text(&prompt, 20));
    b.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn shutting_down_in_the_middle_of_a_step_restarts_nothing() {
    for _ in 0..20 {
        let (system, _) = spawn(64).await;
        let (_, raw) = request(1, 20, 400);
        let mut submission = system.submit(raw).await.unwrap();
        submission.choices[0].next().await.unwrap();
        system.shutdown().await;
        assert_eq!(system.directory().restarts(), 0);
    }
}
