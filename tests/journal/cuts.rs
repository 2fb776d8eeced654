//! Thousands of connections that are cut at any byte while the process is killed again and again.
//! `cargo test --release --test journal -- --ignored --nocapture cuts_under_kills`.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::RwLock;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use reqwest::{Client, RequestBuilder, Response, StatusCode};
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::{
    check,
    client::{Ask, Reader},
    server::Server,
    undisturbed, workload,
};

const NUM_CLIENTS: usize = 32;
const NUM_CUTS: usize = 10_000;
const NUM_KILLS: usize = 200;
/// A client cuts its connection after at most so many bytes.
const BYTES_MAX: usize = 6_000;

/// The state that the clients and the killer share.
#[derive(Default)]
struct Shared {
    url: RwLock<String>,
    is_over: AtomicBool,
    /// Connections that their clients cut, and those that ended with the server.
    cuts: [AtomicUsize; 2],
    /// Streams that each client has read to their ends.
    num_streams: [AtomicUsize; NUM_CLIENTS],
}

impl Shared {
    fn num_cuts(&self) -> usize {
        self.cuts.iter().map(|cuts| cuts.load(Ordering::Relaxed)).sum()
    }

    fn num_streams(&self) -> [usize; NUM_CLIENTS] {
        self.num_streams.each_ref().map(|streams| streams.load(Ordering::Relaxed))
    }
}

/// Returns a request that begins the stream or continues it, by one of the two ways.
fn request(
    client: &Client,
    url: &str,
    ask: &Ask,
    last: Option<&str>,
    by_id: bool,
) -> RequestBuilder {
    if let Some(last) = last.filter(|_| by_id) {
        let stream = last.split_once(':').unwrap().0;
        return client.get(format!("{url}/v1/streams/{stream}?after={last}"));
    }
    let request = client.post(format!("{url}{}", ask.path)).json(&ask.body);
    let request = request.header("X-Detach-Grace", "60");
    match last {
        Some(last) => request.header("Last-Event-ID", last),
        None => request,
    }
}

/// Connects to whichever server runs now, however often that takes. A refusal is a panic, except
/// 503: an answer that was computed at three deaths is held back for a while.
async fn connect(shared: &Shared, ask: &Ask, last: Option<&str>, by_id: bool) -> Response {
    let began = Instant::now();
    loop {
        let url = shared.url.read().clone();
        if let Ok(response) = request(&Client::new(), &url, ask, last, by_id).send().await {
            match response.status() {
                StatusCode::OK => return response,
                StatusCode::SERVICE_UNAVAILABLE => {}
                status => panic!("{status} after {last:?}: {}", response.text().await.unwrap()),
            }
        }
        assert!(began.elapsed() < Duration::from_secs(120), "no server answers {last:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Reads at most `left` bytes. Returns whether the client cuts the connection, and not the server.
async fn read_some(mut response: Response, reader: &mut Reader, mut left: usize) -> bool {
    while let Ok(Some(bytes)) = response.chunk().await {
        let part = &bytes[..bytes.len().min(left)];
        left -= part.len();
        if reader.push(part) || left == 0 {
            return true;
        }
    }
    false
}

/// Streams the same request again and again, and cuts each connection at some byte.
fn stream_on(shared: &Arc<Shared>, ask: Ask, expected: Value, number: usize) -> JoinHandle<()> {
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        let mut random = StdRng::seed_from_u64(number as u64);
        while !shared.is_over.load(Ordering::Relaxed) {
            let mut reader = Reader::default();
            loop {
                let last = reader.last_id().map(str::to_owned);
                let response = connect(&shared, &ask, last.as_deref(), random.random()).await;
                let len = random.random_range(1..=BYTES_MAX);
                let is_own = read_some(response, &mut reader, len).await;
                if reader.is_complete() {
                    break;
                }
                reader.lose_connection();
                shared.cuts[usize::from(!is_own)].fetch_add(1, Ordering::Relaxed);
            }
            check(&ask, &reader, &expected);
            shared.num_streams[number].fetch_add(1, Ordering::Relaxed);
        }
    })
}

fn start(folder: &Path, shared: &Shared) -> Server {
    let server = Server::start(Some(folder), &[]);
    shared.url.write().clone_from(&server.url);
    server
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes"]
async fn cuts_under_kills() {
    let asks = [workload(), workload()].concat();
    let expected = undisturbed(&asks).await;
    let folder = tempfile::tempdir().unwrap();
    let shared = Arc::new(Shared::default());
    let mut server = start(folder.path(), &shared);
    let clients: Vec<_> = asks
        .into_iter()
        .zip(expected)
        .zip(0..)
        .map(|((ask, expected), number)| stream_on(&shared, ask, expected, number))
        .collect();
    let (mut num_kills, began) = (0, Instant::now());
    while num_kills < NUM_KILLS || shared.num_cuts() < NUM_CUTS {
        // Requests that never end between two kills look like the cause of the deaths.
        let (before, limit) = (shared.num_streams(), Instant::now() + Duration::from_secs(240));
        while shared.num_streams().iter().zip(before).any(|(now, before)| *now == before) {
            let failed = clients.iter().any(JoinHandle::is_finished);
            assert!(!failed, "a client failed after {num_kills} kills");
            let now = shared.num_streams();
            assert!(Instant::now() < limit, "a stream does not end: {before:?} ended, now {now:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        server.kill();
        num_kills += 1;
        if num_kills % 10 == 0 {
            println!("{num_kills} kills, {} connections cut", shared.num_cuts());
        }
        server = start(folder.path(), &shared);
    }
    shared.is_over.store(true, Ordering::Relaxed);
    for client in clients {
        client.await.unwrap();
    }
    let [own, by_kill] = shared.cuts.each_ref().map(|cuts| cuts.load(Ordering::Relaxed));
    println!(
        "{num_kills} kills of front and engine in {:?}: {own} connections cut by their clients, \
         {by_kill} by a kill; {} streams, each byte for byte",
        began.elapsed(),
        shared.num_streams().iter().sum::<usize>(),
    );
}
