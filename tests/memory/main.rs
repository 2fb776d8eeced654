//! The memory of the program under clients that try to take all of it: each attack alone, and all
//! at once. The tests read the memory from `/proc`.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of a test may, as tests may")]

mod attacks;
mod client;
mod media;
mod server;
mod storm;

use attacks::{announced, many_values, references, unfinished, waiting_responses};
use client::{Sent, json_body, post};
use serde_json::json;
use server::Server;

pub(crate) const MIB: u64 = 1 << 20;
/// Memory that a server may use in addition to the memory for requests: buffers of connections,
/// threads, the allocator's reserves.
pub(crate) const SLACK: u64 = 160 * MIB;

/// Returns the growth of `server` during `attack`, in bytes.
async fn growth(server: &Server, attack: impl Future<Output = ()>) -> u64 {
    // The first request allocates memory that all requests share.
    assert!(server.completes().await);
    let before = server.resident_bytes();
    server.reset_peak();
    attack.await;
    assert!(server.completes().await, "others are served afterwards");
    server.peak_bytes().saturating_sub(before)
}

/// 200 bodies that announce 31 MiB and send a kilobyte. Each used to take 31 MiB at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_announced_size_of_a_body_takes_no_memory() {
    let server = Server::start(&["--max-request-memory-bytes", "512MiB"]);
    let grown = growth(&server, async {
        let open = announced(&server, 200, 31 << 20).await;
        assert!(server.completes().await, "others are served meanwhile");
        drop(open);
    });
    let grown = grown.await;
    assert!(grown < SLACK, "{} MiB", grown / MIB);
}

/// 48 bodies of 9 MiB that never end. Each would take 81 MiB with the values made from it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_that_never_end_stay_within_the_budget() {
    let server = Server::start(&["--max-request-memory-bytes", "128MiB"]);
    let grown = growth(&server, async {
        let open = unfinished(&server, 48, 9 << 20).await;
        assert!(server.completes().await, "others are served meanwhile");
        // A large request that ends gets memory from them if it retries after each 503.
        let text = "x".repeat(4 << 20);
        let body = json_body(&json!({"prompt": text, "max_tokens": 1}));
        for _ in 0..10 {
            let sent = post(server.address(), "/v1/completions", &body).await.unwrap();
            if sent.status != 503 {
                assert!(sent.text.contains("input_tokens"), "{sent:?}");
                drop(open);
                return;
            }
        }
        panic!("it was never accepted");
    });
    let grown = grown.await;
    assert!(grown < 128 * MIB + SLACK, "{} MiB", grown / MIB);
    assert!(server.metric("playhouse:request_memory_refused_total").await > 0.0);
    assert_eq!(server.metric("playhouse:request_memory_limit_bytes").await, (128 * MIB) as f64);
    // All leased memory was released, except that of the request for the metric.
    server.until_released().await;
}

/// 1,000 references to one stored item of 256 KiB: 256 MiB of text in a body of 75 kB.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn references_to_a_stored_item_share_it_and_their_sum_is_refused_with_the_numbers() {
    let server = Server::start(&["--max-request-memory-bytes", "256MiB"]);
    let grown = growth(&server, async {
        let Sent { status, text } = references(&server, 256 << 10, 1_000).await;
        assert_eq!(status, 413, "{text}");
        // Reading stops at the first item that exceeds the limit.
        let figure = |word: &str| word.parse().ok().filter(|bytes| *bytes > 32 * MIB);
        let refused: Option<u64> = text.split(' ').find_map(figure);
        assert!(refused.is_some_and(|bytes| bytes < 33 * MIB), "{text}");
        assert!(text.contains("body_limit_bytes"), "{text}");
    });
    let grown = grown.await;
    assert!(grown < SLACK, "{} MiB", grown / MIB);
}

/// 60 responses of 6 MiB that wait in the background. Their 360 MiB used not to be counted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn responses_that_wait_in_the_background_are_bounded_and_refused_with_a_time() {
    let server = Server::start(&["--max-request-memory-bytes", "128MiB"]);
    let grown = growth(&server, async {
        let (kept, refused) = waiting_responses(&server, 60, 6 << 20).await;
        assert!(kept > 0 && refused > 50, "{kept} kept, {refused} refused");
    });
    let grown = grown.await;
    assert!(grown < 128 * MIB + SLACK, "{} MiB", grown / MIB);
}

/// 600,000 objects in a body of 4 MiB. An object takes a hundred times the memory of its text.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_of_many_small_values_is_weighed_before_it_is_parsed() {
    let server = Server::start(&["--max-request-memory-bytes", "128MiB"]);
    let grown = growth(&server, async {
        let sent = many_values(&server, 4, 4 << 20).await;
        assert!(sent.iter().any(|sent| sent.status == 413), "{sent:?}");
        for Sent { status, text } in sent {
            // A request whose body finds no room beside the others gets 503 and may retry.
            assert!([413, 503].contains(&status), "{text}");
            assert!(text.contains("max_request_memory_bytes"), "{text}");
        }
    });
    let grown = grown.await;
    assert!(grown < 128 * MIB + SLACK, "{} MiB", grown / MIB);
}

/// Routes that compute without the model, and whose answers are many times as long as the request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tokens_of_a_text_are_weighed_before_it_is_tokenized() {
    let server = Server::start(&["--max-request-memory-bytes", "64MiB"]);
    let text = "a ".repeat(1 << 19);
    let tokens = vec![7; 1 << 18];
    let say = json!({"role": "user", "content": text});
    let cases = [
        ("/tokenize", json!({"prompt": text, "return_token_strs": true})),
        ("/tokenize", json!({"messages": [say], "return_token_strs": true})),
        ("/detokenize", json!({"tokens": tokens})),
    ];
    for (path, body) in cases {
        let sent = post(server.address(), path, &json_body(&body)).await.unwrap();
        assert_eq!(sent.status, 413, "{path}: {}", sent.text);
        assert!(sent.text.contains("max_request_memory_bytes"), "{path}: {}", sent.text);
    }
    let large = json_body(&json!({"max_tokens": 1, "messages": [{"role": "user", "content":
        "x".repeat(8 << 20)}]}));
    let sent = post(server.address(), "/v1/messages", &large).await.unwrap();
    assert_eq!(sent.status, 413, "{}", sent.text);
    assert!(sent.text.contains("request_too_large"), "in the shape of that API: {}", sent.text);
    assert!(server.completes().await);
}
