//! `POST /swap_model` on a running program: streams end on the old weights, new requests get the
//! new ones at once, and a swap that fails changes nothing.

#[cfg(target_os = "linux")]
use std::{collections::BTreeSet, process::Command};
use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

#[cfg(target_os = "linux")]
use futures_util::future::join_all;
use reqwest::Client;
use serde_json::{Value, json};
use tokio::{task::JoinHandle, time::sleep};

use crate::{
    other_model::{broken, other},
    process::playhouse,
    server::Server,
    stream::{Begun, begin, body, completion, finish},
};

const SIZES: &str = "--max-num-seqs 16 --max-num-batched-tokens 256 --num-gpu-blocks-override 400";
const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/demo-model");
/// Longest time for the end of anything.
const PATIENCE: Duration = Duration::from_secs(60);

async fn post(client: &Client, url: &str, path: &str, body: Value) -> (u16, Value) {
    let answer = client.post(format!("{url}{path}")).json(&body).send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap())
}

async fn get(client: &Client, url: &str, path: &str) -> Value {
    client.get(format!("{url}{path}")).send().await.unwrap().json().await.unwrap()
}

/// Swaps the model for that in `folder`. Waits for engines of earlier swaps, if there are too many.
async fn swap(client: &Client, url: &str, folder: &Path) -> Value {
    let limit = Instant::now() + PATIENCE;
    loop {
        let (status, answer) = post(client, url, "/swap_model", json!({"model": folder})).await;
        if status == 200 {
            return answer;
        }
        assert!(status == 409 && Instant::now() < limit, "{status} {answer}");
        sleep(Duration::from_millis(20)).await;
    }
}

/// Returns a greedy answer, which shows the model.
async fn greedy(client: &Client, url: &str) -> String {
    let body = json!({"model": "demo", "prompt": "Once", "temperature": 0, "max_tokens": 8});
    let (status, answer) = post(client, url, "/v1/completions", body).await;
    assert_eq!(status, 200, "{answer}");
    answer["choices"][0]["text"].as_str().unwrap().to_owned()
}

/// Asks again and again until `is_over`. Returns the answers.
fn ask_on(client: &Client, url: &str, is_over: &Arc<AtomicBool>) -> JoinHandle<Vec<String>> {
    let (client, url, is_over) = (client.clone(), url.to_owned(), Arc::clone(is_over));
    tokio::spawn(async move {
        let mut answers = Vec::new();
        while !is_over.load(Ordering::Relaxed) {
            answers.push(greedy(&client, &url).await);
        }
        answers
    })
}

/// Waits until `/metrics` has a line with this text.
async fn until_metric(client: &Client, url: &str, line: &str) {
    let limit = Instant::now() + PATIENCE;
    loop {
        let text = client.get(format!("{url}/metrics")).send().await.unwrap().text().await.unwrap();
        if text.lines().any(|found| found == line) {
            return;
        }
        assert!(Instant::now() < limit, "{line} is not in {text}");
        sleep(Duration::from_millis(20)).await;
    }
}

async fn streams_end_and_new_requests_get_the_new_model(server: Server) {
    let (client, url, folder) = (Client::new(), server.url.clone(), other());
    let calm = finish(begin(&client, &url, 0..6).await).await;
    let old = greedy(&client, &url).await;
    let running = begin(&client, &url, 0..6).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let asking = ask_on(&client, &url, &is_over);
    let swapped = swap(&client, &url, folder.path()).await;
    let names = (&swapped["model"], &swapped["previous_model"]);
    assert_eq!(names, (&json!("demo"), &json!("demo")), "{swapped}");
    assert!(swapped["load_seconds"].as_f64().unwrap() > 0.0, "{swapped}");
    let new = greedy(&client, &url).await;
    assert_ne!(new, old, "the first request after the answer gets the new model");
    is_over.store(true, Ordering::Relaxed);
    let answers = asking.await.unwrap();
    assert!(answers.is_sorted_by_key(|answer| *answer != old), "first the old one: {answers:?}");
    assert!(answers.iter().all(|answer| *answer == old || *answer == new), "{answers:?}");
    for (expected, actual) in calm.iter().zip(finish(running).await) {
        assert_eq!(*expected, actual, "a stream ends on the old weights");
    }
    let info = get(&client, &url, "/server_info").await;
    assert_eq!(info["model"]["root"], folder.path().to_str().unwrap());
    let (status, answer) = post(&client, &url, "/pause", json!({})).await;
    assert_eq!(status, 200, "{answer}");
    let (status, refused) = post(&client, &url, "/swap_model", json!({"model": DEMO})).await;
    assert_eq!((status, &refused["error"]["type"]), (409, &json!("ConflictError")));
    assert_eq!(post(&client, &url, "/resume", json!({})).await.0, 200);
    let (code, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("the engine of the old model has ended"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_end_on_the_old_weights_and_new_requests_get_the_new_ones() {
    streams_end_and_new_requests_get_the_new_model(Server::of_size(SIZES, &[])).await;
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn engine_processes_of_the_old_model_end() {
    let server = Server::of_size(SIZES, &["--data-parallel-size", "2"]);
    let (client, url) = (Client::new(), server.url.clone());
    let before = of_engines(&client, &url, "pid").await;
    assert_eq!(before.len(), 2);
    swap(&client, &url, Path::new(DEMO)).await;
    let after = of_engines(&client, &url, "pid").await;
    assert!(after.len() == 2 && after.iter().all(|pid| !before.contains(pid)), "{after:?}");
    until_children_are(&server, &after).await;
    streams_end_and_new_requests_get_the_new_model(server).await;
}

/// Returns a number that each engine has.
#[cfg(target_os = "linux")]
async fn of_engines(client: &Client, url: &str, name: &str) -> Vec<u64> {
    let engines = get(client, url, "/engines").await;
    let engines = engines["engines"].as_array().unwrap().clone();
    engines.iter().map(|engine| engine[name].as_u64().unwrap()).collect()
}

/// Waits until the server has these processes and no others.
#[cfg(target_os = "linux")]
async fn until_children_are(server: &Server, expected: &[u64]) {
    let tasks = format!("/proc/{}/task", server.pid());
    let children = || {
        let tasks = std::fs::read_dir(&tasks).unwrap().flatten();
        // A thread may have ended meanwhile.
        let texts = tasks.flat_map(|task| std::fs::read_to_string(task.path().join("children")));
        let texts: Vec<_> = texts.collect();
        let pids = texts.iter().flat_map(|text| text.split_whitespace());
        pids.map(|pid| pid.parse().unwrap()).collect::<BTreeSet<u64>>()
    };
    let (limit, expected) = (Instant::now() + PATIENCE, expected.iter().copied().collect());
    while children() != expected {
        assert!(Instant::now() < limit, "{:?} are there, not {expected:?}", children());
        sleep(Duration::from_millis(20)).await;
    }
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_of_an_old_engine_that_dies_go_on_in_the_other_old_one() {
    // The streams must outlast the start of two processes. One engine has room for all of them.
    let sizes = SIZES.replace("400", "900");
    let server = Server::of_size(&sizes, &["-dp", "2", "--max-model-len", "2048"]);
    let (client, url, folder) = (Client::new(), server.url.clone(), other());
    let begin = async || {
        let streams = (0..6).map(|index| {
            let mut long = body(index);
            long["max_tokens"] = json!(2_000);
            let (client, url) = (client.clone(), url.clone());
            async move { Begun::with(&client, &url, &long).await }
        });
        join_all(streams).await
    };
    let calm = finish(begin().await).await;
    let old = of_engines(&client, &url, "pid").await;
    let running = begin().await;
    let requests = of_engines(&client, &url, "num_requests").await;
    assert!(requests.iter().all(|requests| *requests > 0), "both have streams: {requests:?}");
    swap(&client, &url, folder.path()).await;
    let killed = Command::new("kill").args(["-KILL", &old[0].to_string()]).status().unwrap();
    assert!(killed.success(), "the old engines have streams");
    assert_eq!(finish(running).await, calm);
    let new = of_engines(&client, &url, "pid").await;
    until_children_are(&server, &new).await;
    let (code, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("SIGKILL"), "an engine that has streams is killed: {log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_swap_that_fails_changes_nothing() {
    let server = Server::of_size(SIZES, &[]);
    let (client, url, broken) = (Client::new(), server.url.clone(), broken());
    let calm = finish(begin(&client, &url, 0..2).await).await;
    let root = async || get(&client, &url, "/v1/models").await["data"][0]["root"].clone();
    let before = root().await;
    let running = begin(&client, &url, 0..2).await;
    let cases = [
        (json!({"model": "no such folder"}), 422, "no model at no such folder"),
        (json!({"model": broken.path()}), 422, "model.safetensors"),
        (json!({"model": DEMO, "max_model_len": 100_000_000}), 422, "max_model_len"),
        (json!({"model": DEMO, "dtype": "float9"}), 400, "dtype"),
        (json!({"model": DEMO, "drain_timeout": -1}), 400, "drain_timeout"),
        (json!({}), 400, "Field required"),
    ];
    for (body, expected, text) in cases {
        let (status, answer) = post(&client, &url, "/swap_model", body.clone()).await;
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(status == expected && message.contains(text), "{body}: {status} {answer}");
    }
    assert_eq!(finish(running).await, calm);
    assert_eq!(root().await, before);
    assert_eq!(client.get(format!("{url}/readyz")).send().await.unwrap().status(), 200);
    assert_eq!(finish(begin(&client, &url, 0..2).await).await, calm);
    let (code, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_swap_is_under_way_at_a_time() {
    let server = Server::of_size(SIZES, &[]);
    let (client, url) = (Client::new(), server.url.clone());
    let ask = || post(&client, &url, "/swap_model", json!({"model": DEMO}));
    let (a, b, c, d) = tokio::join!(ask(), ask(), ask(), ask());
    let mut codes = [a.0, b.0, c.0, d.0];
    codes.sort_unstable();
    assert_eq!((codes[0], codes[3]), (200, 409), "{codes:?}");
    assert!(codes.iter().all(|code| [200, 409].contains(code)), "{codes:?}");
    let (code, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
}

/// Returns the threads and the resident memory of the program.
#[cfg(target_os = "linux")]
fn holdings(server: &Server) -> (usize, u64) {
    let folder = format!("/proc/{}", server.pid());
    let threads = std::fs::read_dir(format!("{folder}/task")).unwrap().count();
    let status = std::fs::read_to_string(format!("{folder}/status")).unwrap();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    (threads, resident.trim().trim_end_matches(" kB").parse().unwrap())
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_swaps_under_load_lose_nothing_and_leave_nothing() {
    let server = Server::of_size(SIZES, &[]);
    let (client, url, folder) = (Client::new(), server.url.clone(), other());
    let mut short = body(0);
    // A swap takes less time than such a stream, and twenty of them do not take long.
    short["max_tokens"] = json!(16);
    let begin = async || Begun::with(&client, &url, &short).await;
    let old = begin().await.finish().await;
    swap(&client, &url, folder.path()).await;
    let new = begin().await.finish().await;
    assert_ne!(new, old);
    swap(&client, &url, Path::new(DEMO)).await;
    until_metric(
        &client,
        &url,
        "playhouse:num_requests_running{model_name=\"demo\",engine=\"0\"} 0",
    )
    .await;
    let is_over = Arc::new(AtomicBool::new(false));
    let asking = ask_on(&client, &url, &is_over);
    let mut early = holdings(&server);
    for round in 0..20 {
        let running = begin().await;
        let (model, expected) = match round % 2 {
            0 => (folder.path(), &old),
            _ => (Path::new(DEMO), &new),
        };
        swap(&client, &url, model).await;
        assert_eq!(running.finish().await, *expected, "round {round}");
        if round == 3 {
            early = holdings(&server);
        }
    }
    is_over.store(true, Ordering::Relaxed);
    assert!(!asking.await.unwrap().is_empty());
    let limit = Instant::now() + PATIENCE;
    while holdings(&server).0 > early.0 {
        assert!(Instant::now() < limit, "{early:?} threads and KB became {:?}", holdings(&server));
        sleep(Duration::from_millis(50)).await;
    }
    let late = holdings(&server);
    assert!(late.1 < early.1 + early.1 / 2, "{early:?} threads and KB became {late:?}");
    let (code, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_server_keeps_outlives_a_swap() {
    let server = Server::of_size(SIZES, &[]);
    let (client, url, folder) = (Client::new(), server.url.clone(), other());
    let calm = Begun::new(&client, &url, 3).await.finish().await;
    let response = json!({"model": "demo", "input": "Hello", "max_output_tokens": 4});
    let (status, first) = post(&client, &url, "/v1/responses", response.clone()).await;
    assert_eq!(status, 200, "{first}");
    let begun = Begun::new(&client, &url, 3).await.cut();
    let new_name = json!({"model": folder.path(), "served_model_name": ["demo", "second"]});
    let (status, answer) = post(&client, &url, "/swap_model", new_name).await;
    assert_eq!(status, 200, "{answer}");
    let last = begun.lines().rfind(|line| line.starts_with("id: ")).unwrap();
    let (stream, place) = last["id: ".len()..].split_once(':').unwrap();
    let path = format!("{url}/v1/streams/{stream}?after={place}");
    let rest = client.get(path).send().await.unwrap().text().await.unwrap();
    assert_eq!(completion(&(begun + &rest)), calm, "the stream goes on with the old weights");
    let mut next = response;
    next["previous_response_id"] = first["id"].clone();
    next["model"] = json!("second");
    let (status, answer) = post(&client, &url, "/v1/responses", next).await;
    assert_eq!((status, &answer["model"]), (200, &json!("second")), "{answer}");
    let (code, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_beyond_the_drain_timeout_end_with_an_error() {
    // The request must still run when the swap ends it, also on a fast machine.
    let flags = "serve --port 0 --served-model-name demo --max-model-len 4096";
    let flags: Vec<&str> = flags.split(' ').chain(SIZES.split(' ')).collect();
    let server = Server::of(playhouse(&flags));
    let (client, url) = (Client::new(), server.url.clone());
    let mut long = body(0);
    long["max_tokens"] = json!(4_000);
    let running = Begun::with(&client, &url, &long).await;
    let body = json!({"model": DEMO, "served_model_name": "second", "drain_timeout": 0});
    let (status, answer) = post(&client, &url, "/swap_model", body).await;
    assert_eq!((status, &answer["model"]), (200, &json!("second")), "{answer}");
    let events = running.events().await;
    assert!(events.contains("\"error\"") || events.contains("abort"), "{events}");
    let idle = "playhouse:num_requests_running{model_name=\"demo\",engine=\"0\"} 0";
    until_metric(&client, &url, idle).await;
    let (code, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_swap_while_actors_are_killed_loses_nothing() {
    let server = Server::of_size(SIZES, &[]);
    let (client, url, folder) = (Client::new(), server.url.clone(), other());
    let calm = finish(begin(&client, &url, 0..6).await).await;
    let running = begin(&client, &url, 0..6).await;
    let is_over = Arc::new(AtomicBool::new(false));
    let storm = {
        let (client, url, is_over) = (client.clone(), url.clone(), Arc::clone(&is_over));
        tokio::spawn(async move {
            let roles = ["worker", "scheduler", "ledger", "streamer", "kv_cache", "detokenizer"];
            for role in roles.into_iter().cycle() {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                // An actor that is being replaced cannot be killed.
                let body = json!({"role": role, "how": "kill"});
                let _ = post(&client, &url, "/chaos/kill", body).await;
                sleep(Duration::from_millis(40)).await;
            }
        })
    };
    let asking = ask_on(&client, &url, &is_over);
    swap(&client, &url, folder.path()).await;
    assert_eq!(finish(running).await, calm);
    is_over.store(true, Ordering::Relaxed);
    storm.await.unwrap();
    assert!(!asking.await.unwrap().is_empty());
    let (code, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_ends_during_a_swap_answers_its_requests() {
    let server = Server::of_size(SIZES, &[]);
    let (client, url) = (Client::new(), server.url.clone());
    let calm = finish(begin(&client, &url, 0..2).await).await;
    let running = begin(&client, &url, 0..2).await;
    let swap = {
        let (client, url) = (client.clone(), url.clone());
        tokio::spawn(
            async move { post(&client, &url, "/swap_model", json!({"model": DEMO})).await },
        )
    };
    let reading = tokio::spawn(finish(running));
    let (code, log) = tokio::task::spawn_blocking(|| server.end()).await.unwrap();
    assert_eq!(code, Some(0), "{log}");
    assert_eq!(reading.await.unwrap(), calm);
    // The request may come too late for its connection.
    if let Ok((status, answer)) = swap.await {
        assert!([200, 503].contains(&status), "{status} {answer}");
    }
}
