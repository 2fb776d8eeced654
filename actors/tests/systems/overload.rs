//! More requests than can be served. Accepted requests are served in full. The others are refused
//! at the door with a time to retry, and leave no state. `playhouse bench overload` measures the
//! speed of this.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::time::Duration;

use crate::common::{collect, expected_text, request, spawn_with};
use playhouse_actors::{
    error::RequestError,
    system::{PauseMode, SystemConfig},
};
use tokio::task::JoinSet;

/// Number of bursts, and of requests in a burst.
const BURSTS: u32 = 20;
const BURST: u32 = 100;
const TOKENS: usize = 8;
const QUEUED_MAX: usize = 16;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn accepted_requests_are_served_and_the_others_get_a_time_to_retry() {
    let (system, _) = spawn_with(64, |config: &mut SystemConfig| {
        config.admission.max_num_queued_reqs = Some(QUEUED_MAX);
    })
    .await;
    let system = std::sync::Arc::new(system);
    let (mut served, mut refused) = (0, 0);
    for burst in 0..BURSTS {
        let mut tasks = JoinSet::new();
        for number in 0..BURST {
            let system = std::sync::Arc::clone(&system);
            tasks.spawn(async move {
                let (prompt, raw) = request(burst * BURST + number, 30, TOKENS as u32);
                let mut submission = system.submit(raw).await?;
                let (text, finish) = collect(submission.choices.remove(0)).await;
                assert_eq!(finish, "length");
                assert_eq!(text, expected_text(&prompt, TOKENS));
                Ok::<_, RequestError>(())
            });
        }
        for outcome in tasks.join_all().await {
            match outcome {
                Ok(()) => served += 1,
                Err(RequestError::QueueFull { limit, retry_after, .. }) => {
                    assert_eq!(limit, QUEUED_MAX as u64);
                    assert!(!retry_after.is_zero());
                    refused += 1;
                }
                Err(other) => panic!("refused for another reason: {other}"),
            }
        }
    }
    assert_eq!(served + refused, BURSTS * BURST);
    // The queue alone holds this many requests of each burst.
    assert!(served >= BURSTS * QUEUED_MAX as u32, "{served} served");
    assert!(refused > 0, "the door never closed");
    assert!(system.drain(Duration::from_secs(60)).await, "nothing stays open");
    system.shutdown().await;
}

/// Requests pile up while an engine process is replaced. A beam search goes on nevertheless.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_engine_takes_the_parts_of_an_accepted_request() {
    let (system, _) = spawn_with(64, |config: &mut SystemConfig| {
        config.admission.max_num_queued_reqs = Some(1);
    })
    .await;
    system.pause(PauseMode::Keep).await.unwrap();
    let waiting = system.submit(request(1, 30, 5).1).await.unwrap();
    let refused = system.submit(request(2, 30, 5).1).await;
    assert!(matches!(refused, Err(RequestError::QueueFull { .. })), "{refused:?}");
    let (prompt, part) = request(3, 30, 5);
    let mut part = system.submit_part(part).await.unwrap();
    system.resume();
    let (text, finish) = collect(part.choices.remove(0)).await;
    assert_eq!((text, finish.as_str()), (expected_text(&prompt, 5), "length"));
    drop(waiting);
    system.shutdown().await;
}
