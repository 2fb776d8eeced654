//! All attacks at once, beside clients that ask for little. `.ci/long memory` runs it on a release
//! build under a limit that would kill the server.
//!
//! MEMORY_SECONDS (600) is the duration in seconds. PLAYHOUSE is the program, by default that of
//! the tests. MEMORY_LIMITER is a command prefix that limits the program's memory from outside.

use std::{
    env,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tokio::{io::AsyncWriteExt, task::JoinSet};

use crate::{
    MIB,
    attacks::{background, refer, stored_item, unfinished},
    client::{Shared, begin, feed, get, json_body, post},
    server::Server,
};

/// The server's memory for requests, and the most that it may have in all, in bytes.
const REQUEST_MEMORY: u64 = 512 * MIB;
const LIMIT: u64 = 2048 * MIB;
/// The longest texts, in bytes. A tokenizer once took a hundred times as much memory.
const TEXT: usize = 8 << 20;
const PAUSE: Duration = Duration::from_millis(20);
/// Longest time for an answer about health.
const HEALTH_PATIENCE: Duration = Duration::from_secs(10);

/// Numbers of answers by their kind.
#[derive(Debug, Default)]
struct Tally {
    answered: AtomicU64,
    /// 413 and other statuses that blame the request.
    refused: AtomicU64,
    /// 503, always with a time after which the client may retry.
    overloaded: AtomicU64,
    broken: AtomicU64,
}

impl Tally {
    fn count(&self, status: Option<u16>) {
        let counter = match status {
            Some(200) => &self.answered,
            Some(503) => &self.overloaded,
            Some(400..500) => &self.refused,
            _ => &self.broken,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    fn of(&self, counter: &AtomicU64) -> u64 {
        counter.load(Ordering::Relaxed)
    }
}

/// Sends `body` to `path` again and again.
async fn repeat(address: Arc<str>, path: &'static str, body: Shared, tally: Arc<Tally>) {
    loop {
        tally.count(post(&address, path, &body).await.map(|sent| sent.status));
        tokio::time::sleep(PAUSE).await;
    }
}

/// Starts streams and reads nothing of them.
async fn unread(address: Arc<str>) {
    let body = json!({
        "prompt": "Once", "n": 16, "max_tokens": 4000, "ignore_eos": true, "logprobs": 5,
        "stream": true,
    });
    let body = json_body(&body);
    loop {
        let mut open = Vec::new();
        for _ in 0..4 {
            let Some(mut stream) = begin(&address, "/v1/completions", body.len()).await else {
                continue;
            };
            let _ = stream.write_all(&body).await;
            open.push(stream);
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
}

/// Sends bodies that announce much and contain little.
async fn announce(address: Arc<str>) {
    loop {
        let mut open = Vec::new();
        for _ in 0..200 {
            if let Some(mut stream) = begin(&address, "/v1/chat/completions", 31 << 20).await {
                feed(&mut stream, 1 << 10, PAUSE).await;
                open.push(stream);
            }
        }
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
}

async fn refer_on(address: Arc<str>, item: String, tally: Arc<Tally>) {
    loop {
        tally.count(refer(&address, &item, 1_000).await.map(|sent| sent.status));
        tokio::time::sleep(PAUSE).await;
    }
}

/// Returns the bodies that are sent again and again, with their routes.
fn bodies() -> Vec<(&'static str, Shared)> {
    let text = "a quick brown fox ".repeat(TEXT / 18);
    let said = json!([{"role": "user", "content": text}]);
    let values = format!(r#"{{"messages": [{}0]}}"#, r#"{"":0},"#.repeat(TEXT / 7));
    let long = |fields: Value| {
        let mut body = json!({"max_tokens": 1, "truncate_prompt_tokens": -1});
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        json_body(&body)
    };
    let batch = json!({
        "messages": vec![json!([{"role": "user", "content": "Hi"}]); 512], "max_tokens": 1,
        "user": "x".repeat(32 << 10),
    });
    vec![
        ("/tokenize", json_body(&json!({"prompt": text, "return_token_strs": true}))),
        ("/tokenize", json_body(&json!({"messages": said}))),
        ("/detokenize", json_body(&json!({"tokens": vec![7; 1 << 20]}))),
        ("/v1/messages/count_tokens", json_body(&json!({"model": "demo", "messages": said}))),
        ("/v1/responses/input_tokens", json_body(&json!({"input": text}))),
        ("/v1/completions", long(json!({"prompt": text}))),
        ("/v1/chat/completions", long(json!({"messages": said}))),
        ("/v1/chat/completions", Arc::new(values.into_bytes())),
        ("/v1/chat/completions/batch", json_body(&batch)),
        ("/v1/responses", background(8 << 20)),
        ("/v1/responses", background(1 << 20)),
    ]
}

/// Starts every attack twice.
fn attack(server: &Arc<Server>, item: &str, tally: &Arc<Tally>) -> JoinSet<()> {
    let mut attacks = JoinSet::new();
    let address: Arc<str> = server.address().into();
    for (path, body) in bodies() {
        for _ in 0..2 {
            attacks.spawn(repeat(address.clone(), path, body.clone(), tally.clone()));
        }
    }
    for _ in 0..2 {
        attacks.spawn(refer_on(address.clone(), item.to_owned(), tally.clone()));
        attacks.spawn(unread(address.clone()));
        attacks.spawn(announce(address.clone()));
    }
    let server = server.clone();
    attacks.spawn(async move {
        loop {
            let open = unfinished(&server, 64, 31 << 20).await;
            tokio::time::sleep(Duration::from_secs(2)).await;
            drop(open);
        }
    });
    attacks
}

/// Sends small requests and counts the answers.
async fn ask(address: Arc<str>, tally: Arc<Tally>) {
    let body = json_body(&json!({"prompt": "Once", "max_tokens": 4, "ignore_eos": true}));
    repeat(address, "/v1/completions", body, tally).await;
}

fn seconds() -> Duration {
    let seconds = env::var("MEMORY_SECONDS").ok().and_then(|value| value.parse().ok());
    Duration::from_secs(seconds.unwrap_or(600))
}

fn program() -> Command {
    let program = env::var("PLAYHOUSE").unwrap_or(env!("CARGO_BIN_EXE_playhouse").to_owned());
    let limiter = env::var("MEMORY_LIMITER").unwrap_or_default();
    let mut words = limiter.split_whitespace().chain([program.as_str()]);
    let mut command = Command::new(words.next().unwrap_or(&program));
    command.args(words);
    command
}

/// Memory stays below the limit, small requests are still served, and the process goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes MEMORY_SECONDS: .ci/long memory"]
async fn a_storm_of_all_attacks_stays_below_the_limit_while_others_are_served() {
    let memory = REQUEST_MEMORY.to_string();
    let server = Arc::new(Server::run(program(), &["--max-request-memory-bytes", &memory]));
    let item = stored_item(&server, 256 << 10).await.unwrap();
    let (attackers, polite) = (Arc::new(Tally::default()), Arc::new(Tally::default()));
    let mut attacks = attack(&server, &item, &attackers);
    for _ in 0..4 {
        attacks.spawn(ask(server.address().into(), polite.clone()));
    }
    let (mut most, mut looks) = (0, 0_u32);
    let end = Instant::now() + seconds();
    while Instant::now() < end {
        most = most.max(server.resident_bytes());
        assert!(most < LIMIT, "{} MiB are resident", most / MIB);
        if looks.is_multiple_of(10) {
            let health = get(server.address(), "/health");
            let health = tokio::time::timeout(HEALTH_PATIENCE, health).await;
            let health = health.ok().flatten().map(|sent| sent.status);
            assert_eq!(health, Some(200), "after {looks} looks: {polite:?}");
        }
        looks += 1;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let in_use = server.metric("playhouse:request_memory_bytes").await;
    attacks.shutdown().await;
    println!(
        "{} MiB at most, {} MiB leased at the end; attacks: {attackers:?}; others: {polite:?}",
        most / MIB,
        in_use as u64 / MIB
    );
    let served = polite.of(&polite.answered);
    let turned_away = polite.of(&polite.overloaded);
    assert_eq!((polite.of(&polite.broken), polite.of(&polite.refused)), (0, 0), "{polite:?}");
    assert!(served > 10 && served > turned_away, "{polite:?}");
    assert!(server.completes().await);
    let mut server = Arc::into_inner(server).unwrap();
    assert!(server.is_running());
}
