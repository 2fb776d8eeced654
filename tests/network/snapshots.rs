//! The page at `/` and its data: every viewer gets the same snapshots, whatever dies.

use std::time::{Duration, Instant};

use playhouse::server::ServerConfig;
use playhouse_actors::{fault::How, message::Role};
use reqwest::{Client, Response, StatusCode};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::{PATIENCE, serve, serving::Served};

async fn get(served: &Served, path: &str) -> Response {
    Client::new().get(format!("{}{path}", served.url)).send().await.unwrap()
}

/// Reads the snapshots of `/house/events` as they come.
struct Watch {
    response: Response,
    rest: String,
}

impl Watch {
    async fn start(served: &Served) -> Self {
        let response = get(served, "/house/events").await;
        assert_eq!(response.status(), StatusCode::OK);
        let kind = response.headers()["content-type"].to_str().unwrap();
        assert!(kind.starts_with("text/event-stream"), "{kind}");
        Self { response, rest: String::new() }
    }

    /// Returns the next snapshot, or `None` if the server has ended the stream.
    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some((event, rest)) = self.rest.split_once("\n\n") {
                let snapshot = event
                    .strip_prefix("data: ")
                    .map(|data| serde_json::from_str::<Value>(data).unwrap());
                self.rest = rest.to_owned();
                if snapshot.is_some() {
                    return snapshot;
                }
                continue;
            }
            let chunk = timeout(PATIENCE, self.response.chunk()).await.unwrap().unwrap();
            self.rest.push_str(std::str::from_utf8(&chunk?).unwrap());
        }
    }

    /// Returns the first snapshot for which `shows` holds.
    async fn until(&mut self, shows: impl Fn(&Value) -> bool) -> Value {
        let looks = async {
            loop {
                let snapshot = self.next().await.unwrap();
                if shows(&snapshot) {
                    return snapshot;
                }
            }
        };
        timeout(PATIENCE, looks).await.unwrap()
    }
}

fn actor<'a>(snapshot: &'a Value, role: &str) -> &'a Value {
    let actors = snapshot["actors"].as_array().unwrap();
    actors.iter().find(|actor| actor["role"] == role).unwrap()
}

/// Asks for a completion that goes on for a while. Returns its text.
async fn complete(served: &Served, max_tokens: usize) -> String {
    let body = json!({
        "prompt": "Once upon a time", "max_tokens": max_tokens, "ignore_eos": true, "seed": 5,
    });
    let request = Client::new().post(format!("{}/v1/completions", served.url)).json(&body);
    let answer: Value = request.send().await.unwrap().json().await.unwrap();
    answer["choices"][0]["text"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_is_served_with_its_types_its_policy_and_its_hash() {
    let served =
        serve(ServerConfig { root_path: "/llm".to_owned(), ..ServerConfig::default() }).await;
    let kinds = [
        ("/", "text/html"),
        ("/llm/", "text/html"),
        ("/page/main.js", "text/javascript"),
        ("/llm/page/base.css", "text/css"),
        ("/page/house.svg", "image/svg+xml"),
        ("/page/vendor/marked.js", "text/javascript"),
        ("/page/vendor/LICENSES.txt", "text/plain"),
    ];
    for (path, kind) in kinds {
        let answer = get(&served, path).await;
        assert_eq!(answer.status(), StatusCode::OK, "{path}");
        let header = |name: &str| answer.headers()[name].to_str().unwrap().to_owned();
        assert!(header("content-type").starts_with(kind), "{path}");
        assert!(header("content-security-policy").contains("default-src 'self'"), "{path}");
        assert!(!header("content-security-policy").contains("unsafe"), "{path}");
        assert_eq!(header("x-content-type-options"), "nosniff");
        let known = Client::new().get(format!("{}{path}", served.url));
        let known = known.header("if-none-match", header("etag")).send().await.unwrap();
        assert_eq!(known.status(), StatusCode::NOT_MODIFIED, "{path}");
    }
    let document = get(&served, "/").await.text().await.unwrap();
    assert!(document.contains(r#"<base href="/llm/">"#));
    for path in
        ["/page/none.js", "/page/vendor/README.md", "/page/", "/page/../mod.rs", "/page/mod.rs"]
    {
        let url = format!("{}{path}", served.url);
        assert_eq!(Client::new().get(url).send().await.unwrap().status(), 404, "{path}");
    }
    let posted = Client::new().post(format!("{}/", served.url)).send().await.unwrap();
    assert_eq!(posted.status(), StatusCode::METHOD_NOT_ALLOWED);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_guards_the_snapshots_but_not_the_page() {
    let server = ServerConfig { api_keys: vec!["secret".to_owned()], ..ServerConfig::default() };
    let served = serve(server).await;
    for path in ["/house", "/house/events"] {
        assert_eq!(get(&served, path).await.status(), StatusCode::UNAUTHORIZED, "{path}");
        let request = Client::new().get(format!("{}{path}", served.url)).bearer_auth("secret");
        assert_eq!(request.send().await.unwrap().status(), StatusCode::OK, "{path}");
    }
    for path in ["/", "/page/main.js"] {
        assert_eq!(get(&served, path).await.status(), StatusCode::OK, "{path}");
    }
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_has_actors_requests_and_blocks_but_no_texts() {
    let served = serve(ServerConfig::default()).await;
    let mut watch = Watch::start(&served).await;
    let first = watch.next().await.unwrap();
    assert_eq!(first["health"], "ready");
    assert_eq!(first["has_chaos"], true, "tests are built with it");
    assert_eq!(first["actors"].as_array().unwrap().len(), 17);
    assert_eq!(actor(&first, "scheduler")["parent"], "core");
    assert_eq!(actor(&first, "root")["parent"], Value::Null);
    let secret = "xylophone".repeat(40);
    let body = json!({"prompt": secret, "max_tokens": 3000, "ignore_eos": true, "stream": true});
    let request = Client::new().post(format!("{}/v1/completions", served.url)).json(&body);
    let stream = request.send().await.unwrap();
    let busy = watch.until(|snapshot| {
        let requests = snapshot["engines"][0]["scheduler"]["requests"].as_array();
        let runs = requests.and_then(|requests| requests.first()).is_some_and(|request| {
            request["waits_for"].is_null() && request["num_output_tokens"].as_u64() > Some(20)
        });
        runs && snapshot["engines"][0]["kv_cache"]["runs"]
            .as_array()
            .is_some_and(|runs| runs.len() > 1)
            && snapshot["inter_token_latency"]["count"].as_u64() > Some(0)
    });
    let busy = busy.await;
    let request = &busy["engines"][0]["scheduler"]["requests"][0];
    let id = &request["id"];
    let blocks = busy["engines"][0]["kv_cache"]["runs"].as_array().unwrap();
    assert!(blocks.iter().any(|run| run[1] == 3 && &run[2] == id), "{blocks:?}");
    let count = |run: &Value| run[0].as_u64().unwrap();
    assert_eq!(
        blocks.iter().map(count).sum::<u64>(),
        busy["engines"][0]["kv_cache"]["num_blocks"].as_u64().unwrap()
    );
    let timeline =
        busy["engines"][0]["timelines"].as_array().unwrap().iter().find(|one| &one["id"] == id);
    let segments = timeline.unwrap()["segments"].as_array().unwrap();
    assert_eq!(segments[0][0], 0, "it begins with its prompt");
    assert_eq!(segments.last().unwrap()[0], 2, "it has come to decoding");
    assert!(busy["inter_token_latency"]["p50_ms"].as_f64().unwrap() > 0.0);
    let edges = busy["edges"].as_array().unwrap();
    let step = edges.iter().find(|edge| edge["edge"] == "scheduler->worker").unwrap();
    assert!(step["messages"].as_u64() > Some(20));
    for snapshot in [&busy, &get(&served, "/house").await.json::<Value>().await.unwrap()] {
        assert!(!snapshot.to_string().contains("xylophone"));
    }
    drop(stream);
    let ended = watch.until(|snapshot| snapshot["open_requests"] == 0).await;
    assert!(ended["totals"]["output_tokens"].as_u64() > Some(20));
    served.stop().await;
    // A page that stays open does not keep the server from ending.
    while watch.next().await.is_some() {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_viewers_get_the_same_snapshots_and_at_most_four_a_second() {
    let served = serve(ServerConfig::default()).await;
    let seq = |snapshot: &Value| snapshot["seq"].as_u64().unwrap();
    let began = Instant::now();
    let mut watches = futures_util::future::join_all((0..24).map(|_| Watch::start(&served))).await;
    let first = seq(&watches[0].next().await.unwrap());
    let mut seen = vec![Vec::new(); watches.len()];
    for _ in 0..6 {
        for (watch, seen) in watches.iter_mut().zip(&mut seen) {
            seen.push(watch.next().await.unwrap().to_string());
        }
    }
    // A single request for a snapshot causes no newer one either.
    let asked = futures_util::future::join_all((0..24).map(|_| get(&served, "/house"))).await;
    let mut last = 0;
    for answer in asked {
        last = last.max(seq(&answer.json().await.unwrap()));
    }
    let most = 2 + began.elapsed().as_millis() as u64 / 250;
    assert!(last - first < most, "{} snapshots in {:?}", last - first, began.elapsed());
    let all: Vec<&String> = seen.iter().flatten().collect();
    for snapshot in &all {
        let parsed: Value = serde_json::from_str(snapshot).unwrap();
        let same = all.iter().filter(|other| {
            let other: Value = serde_json::from_str(other).unwrap();
            other["seq"] == parsed["seq"] && other != parsed
        });
        assert_eq!(same.count(), 0, "one number, one snapshot");
    }
    drop(watches);
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_events_go_on_while_actors_die() {
    let served = serve(ServerConfig::default()).await;
    let in_peace = complete(&served, 600).await;
    let mut watch = Watch::start(&served).await;
    watch.next().await.unwrap();
    let strike = async {
        for (role, how) in [
            (Role::Scheduler, How::Hang),
            (Role::KvCacheManager, How::Panic),
            (Role::Worker, How::Kill),
            (Role::Ledger, How::Panic),
        ] {
            served.engine.chaos().strike(role, 0, how).unwrap();
            let before = watch.next().await.unwrap()["seq"].as_u64().unwrap();
            let restarted = watch.until(|snapshot| actor(snapshot, role.as_str())["restarts"] != 0);
            let seq = restarted.await["seq"].as_u64().unwrap();
            assert!(seq >= before, "{role:?} came back in snapshot {seq}");
        }
        watch
    };
    let (in_chaos, mut watch) = tokio::join!(complete(&served, 600), strike);
    assert_eq!(in_chaos, in_peace);
    let after = watch.until(|snapshot| snapshot["health"] == "ready").await;
    assert!(after["epoch"].as_u64() > Some(3), "{}", after["epoch"]);
    assert!(after["engines"][0]["scheduler"]["age_ms"].is_u64());
    served.stop().await;
}

/// A scheduler that hangs is shown in its last known state, with the state's age. No request waits
/// for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hanging_scheduler_is_shown_in_its_last_state() {
    let served = serve(ServerConfig::default()).await;
    let mut watch = Watch::start(&served).await;
    watch.until(|snapshot| snapshot["engines"][0]["scheduler"]["age_ms"] == 0).await;
    // A scheduler that hangs is replaced within a fifth of a second. So the test strikes it again
    // and again, until a snapshot falls into that time.
    let strikes = async {
        let mut pace = tokio::time::interval(Duration::from_millis(40));
        loop {
            pace.tick().await;
            let _ = served.engine.chaos().strike(Role::Scheduler, 0, How::Hang);
        }
    };
    let is_old =
        |snapshot: &Value| snapshot["engines"][0]["scheduler"]["age_ms"].as_u64() > Some(0);
    let stale = tokio::select! {
        stale = watch.until(is_old) => stale,
        () = strikes => unreachable!(),
    };
    assert!(stale["engines"][0]["scheduler"]["step"].is_u64());
    let asked = Instant::now();
    assert_eq!(get(&served, "/house").await.status(), StatusCode::OK);
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
    let back = |snapshot: &Value| {
        snapshot["engines"][0]["scheduler"]["age_ms"] == 0
            && actor(snapshot, "scheduler")["restarts"].as_u64() > Some(0)
    };
    watch.until(back).await;
    served.stop().await;
}
