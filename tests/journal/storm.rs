//! Many upgrades and swaps while clients stream without a pause. It tells the longest stall:
//! `cargo test --test journal -- --ignored --nocapture changes_under_load`.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use reqwest::{Client, StatusCode};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::{
    client::{Ask, Reader, post, said},
    deaths::long,
    server::Server,
    undisturbed,
    upgrades::{kill, upgrade},
};

const NUM_CLIENTS: usize = 32;
const NUM_UPGRADES: usize = 20;
const NUM_SWAPS: usize = 100;
const NUM_TOKENS: usize = 120;
const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/demo-model");

/// The findings of one client: its complete streams, and its longest wait for an event.
type Findings = (usize, Duration);

/// Streams the same request again and again, each time on a new connection. Any difference and any
/// error is a panic.
fn stream_on(
    url: &str,
    ask: Ask,
    expected: Value,
    is_over: &Arc<AtomicBool>,
    num_ended: &Arc<AtomicUsize>,
) -> JoinHandle<Findings> {
    let (url, is_over, num_ended) = (url.to_owned(), Arc::clone(is_over), Arc::clone(num_ended));
    tokio::spawn(async move {
        let (mut num_streams, mut longest) = (0, Duration::ZERO);
        while !is_over.load(Ordering::Relaxed) {
            let (mut reader, mut last) = (Reader::default(), Instant::now());
            let mut response = post(&Client::new(), &url, &ask, None).await;
            while let Some(bytes) = response.chunk().await.unwrap() {
                longest = longest.max(last.elapsed());
                last = Instant::now();
                if reader.push(&bytes) {
                    break;
                }
            }
            assert!(reader.is_complete(), "a stream was lost");
            assert_eq!(said(&reader.events), expected);
            num_streams += 1;
            num_ended.fetch_add(1, Ordering::Relaxed);
        }
        (num_streams, longest)
    })
}

/// Waits until so many further streams have ended.
async fn until_more(num_ended: &AtomicUsize, more: usize) {
    let target = num_ended.load(Ordering::Relaxed) + more;
    let limit = Instant::now() + Duration::from_secs(240);
    while num_ended.load(Ordering::Relaxed) < target {
        assert!(Instant::now() < limit, "{num_ended:?} streams have ended, not {target}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn swap(client: &Client, url: &str, model: &str) {
    let limit = Instant::now() + Duration::from_secs(120);
    loop {
        let body = json!({"model": model, "served_model_name": "demo"});
        let answer = client.post(format!("{url}/swap_model")).json(&body).send().await.unwrap();
        let (status, text) = (answer.status(), answer.text().await.unwrap());
        match status {
            StatusCode::OK => return,
            // Two earlier engines still have streams.
            StatusCode::CONFLICT if Instant::now() < limit => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            _ => panic!("{status} {text}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes"]
async fn changes_under_load() {
    let asks: Vec<_> = (0..NUM_CLIENTS).map(|number| long(number, NUM_TOKENS)).collect();
    let expected = undisturbed(&asks).await;
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(Some(folder.path()), &["--max-num-seqs", "32"]);
    let (is_over, num_ended) = (Arc::new(AtomicBool::new(false)), Arc::default());
    let clients: Vec<_> = asks
        .into_iter()
        .zip(expected)
        .map(|(ask, expected)| stream_on(&server.url, ask, expected, &is_over, &num_ended))
        .collect();
    let mut last = 0;
    let began = Instant::now();
    for _ in 0..NUM_UPGRADES {
        until_more(&num_ended, 4).await;
        last = upgrade(&Client::new(), &server).await;
    }
    let upgrades = began.elapsed();
    for _ in 0..NUM_SWAPS {
        until_more(&num_ended, 4).await;
        swap(&Client::new(), &server.url, DEMO).await;
    }
    is_over.store(true, Ordering::Relaxed);
    let (mut num_streams, mut longest) = (0, Duration::ZERO);
    for client in clients {
        let (own, stall) = client.await.unwrap();
        num_streams += own;
        longest = longest.max(stall);
    }
    println!(
        "{NUM_UPGRADES} upgrades in {upgrades:?}, {NUM_SWAPS} swaps in {:?}, {num_streams} streams \
         of {NUM_CLIENTS} clients, 0 lost, longest wait for an event {longest:?}",
        began.elapsed() - upgrades,
    );
    kill(last).await;
}
