//! Recordings of a server in a storm: each of them is run again, with the model and without.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use playhouse::api::recording::{Entry, Scan, encode, scan};
use reqwest::Client;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{process::playhouse, server::Server, stream::Begun};

/// Strikes that end the core or parts of it, one after the other.
const ROLES: [&str; 5] = ["scheduler", "worker", "kv_cache", "structured_output", "core"];
const PAUSE: Duration = Duration::from_millis(150);

/// Serves a workload while parts die. Returns the recordings.
async fn recorded(folder: &Path, flags: &[&str]) -> Vec<PathBuf> {
    let record = ["--record", folder.to_str().unwrap()];
    let server = Server::start(&[&record[..], flags].concat());
    let client = Client::new();
    let guided = json!({
        "model": "demo", "prompt": "Words:", "max_tokens": 60, "seed": 5, "stream": true,
        "structured_outputs": {"regex": "([a-z]{3}[0-9]{2} ){60}"},
    });
    let guided = Begun::with(&client, &server.url, &guided).await;
    let left = Begun::new(&client, &server.url, 90).await;
    let answers = {
        let (client, url) = (client.clone(), server.url.clone());
        tokio::spawn(async move { crate::replay(&client, &url).await })
    };
    for (strike, role) in ROLES.iter().enumerate() {
        sleep(PAUSE).await;
        let body = json!({"role": role, "how": (["kill", "panic"][strike % 2])});
        let url = format!("{}/chaos/kill", server.url);
        // A part that is being replaced is not struck.
        client.post(url).json(&body).send().await.unwrap();
    }
    // The client leaves, and its request is aborted after its time.
    drop(left.cut());
    assert_eq!(answers.await.unwrap().len(), 24);
    guided.finish().await;
    let (code, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
    recordings(folder)
}

/// Returns the recordings in a folder.
pub(crate) fn recordings(folder: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|ending| ending == "recording")).collect()
}

/// Replays a file. Returns the exit code, the output and the errors.
pub(crate) fn replay(path: &Path, flags: &[&str]) -> (Option<i32>, String, String) {
    playhouse(&[&["replay", path.to_str().unwrap()], flags].concat()).finish()
}

/// Replays a file that has no difference. Returns the report.
pub(crate) fn report(path: &Path, flags: &[&str]) -> Value {
    let (code, out, err) = replay(path, &[flags, &["--output", "json"]].concat());
    assert_eq!(code, Some(0), "{flags:?}: {out}{err}");
    serde_json::from_str(&out).unwrap()
}

/// Replays the files in all ways. `keys` are the flags that open them.
fn check(paths: &[PathBuf], keys: &[&str]) {
    let (mut num_requests, mut num_tokens) = (0, 0);
    for path in paths {
        let whole = report(path, keys);
        assert_eq!(whole["tokens_compared"], true);
        num_requests += whole["requests"].as_u64().unwrap();
        num_tokens += whole["tokens"].as_u64().unwrap();
        let schedule_only = [keys, &["--schedule-only"]].concat();
        assert_eq!(report(path, &schedule_only)["schedule"], whole["schedule"]);
        let hidden = path.with_extension("redacted");
        let redact = [keys, &["--redact", hidden.to_str().unwrap()]].concat();
        let (code, _, err) = replay(path, &redact);
        assert_eq!(code, Some(0), "{err}");
        assert_eq!(report(&hidden, &["--schedule-only"])["schedule"], whole["schedule"]);
        let (code, _, err) = replay(&hidden, &[]);
        assert!(code == Some(1) && err.contains("the recording is redacted"), "{err}");
    }
    assert!(num_requests >= 24 && num_tokens > 1_000, "{num_requests}, {num_tokens}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recording_of_a_storm_is_run_again() {
    let folder = tempfile::tempdir().unwrap();
    let guesses = r#"{"method": "ngram", "num_speculative_tokens": 3}"#;
    let paths =
        recorded(folder.path(), &["--single-process", "--speculative-config", guesses]).await;
    assert_eq!(paths.len(), 1, "one for each engine");
    check(&paths, &[]);
    planted(&paths[0]);
    listed(&paths[0]);
}

/// These are encrypted.
#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recordings_of_engine_processes_are_run_again() {
    use std::os::unix::fs::PermissionsExt as _;

    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("key");
    fs::write(&key, [7; 32]).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    let keys = ["--record-key-file", key.to_str().unwrap()];
    let paths = recorded(folder.path(), &[&keys[..], &["--async-scheduling"]].concat()).await;
    assert!(!paths.is_empty());
    check(&paths, &keys);
    for path in paths {
        let bytes = fs::read(&path).unwrap();
        let regex = b"([a-z]{3}[0-9]{2} )";
        assert!(!bytes.windows(regex.len()).any(|part| part == regex), "it can be read");
        let (code, _, err) = replay(&path, &[]);
        assert!(code == Some(1) && err.contains("there is no record_key_file"), "{err}");
    }
}

/// Another seed in the recording is found at the first step that draws with it.
fn planted(path: &Path) {
    let Scan { mut entries, began, num_bytes, fault } = scan(&fs::read(path).unwrap()).unwrap();
    let steps_of = |id| {
        let of_request = move |entry: &Entry| match entry {
            Entry::StepDone { step, rows, .. } => {
                let mut rows = rows.iter().filter(|row| row.request() == id);
                rows.any(|row| !row.tokens().is_empty()).then_some(step.0)
            }
            _ => None,
        };
        entries.iter().filter_map(of_request).collect::<Vec<u64>>()
    };
    let is_sampled = |entry: &Entry| match entry {
        Entry::Added(requests) => {
            let sampling = requests[0].sampling();
            sampling.is_some_and(|it| it.temperature == 1.0).then_some(requests[0].id)
        }
        _ => None,
    };
    let sampled = entries.iter().filter_map(is_sampled);
    let id = sampled.max_by_key(|&id| steps_of(id).len()).unwrap();
    let steps = steps_of(id);
    for entry in &mut entries {
        let requests: Vec<_> = match entry {
            Entry::Added(requests) => requests.iter_mut().collect(),
            Entry::Recovered { live, .. } => live.iter_mut().map(|it| &mut it.request).collect(),
            _ => Vec::new(),
        };
        for request in requests.into_iter().filter(|request| request.id == id) {
            Arc::make_mut(request).seed ^= 1;
        }
    }
    let other = path.with_extension("planted");
    let scan = Scan { entries, began, num_bytes, fault };
    fs::write(&other, encode(&scan).unwrap()).unwrap();
    let (code, out, err) = replay(&other, &[]);
    assert_eq!(code, Some(1), "{out}{err}");
    let (step, rest) = err.rsplit_once("error: step ").unwrap().1.split_once(": ").unwrap();
    assert!(rest.starts_with(&format!("the results differ for request {id}: tokens [")), "{err}");
    // Several first tokens may be the same with both seeds. They are in the steps before this one.
    let at = steps.iter().position(|of| of.to_string() == step);
    assert!(at.is_some(), "{err}: {steps:?}");
    if let Some(before) = at.unwrap().checked_sub(1) {
        assert_eq!(report(&other, &["--until", &steps[before].to_string()])["equal"], true);
    }
    assert_eq!(report(&other, &["--schedule-only"])["equal"], true);
    let (code, _, err) = replay(path, &["--schedule-only", "--diff", "/bin/false"]);
    assert!(code == Some(1) && err.contains("/bin/false printed no step"), "{err}");
    let program = env!("CARGO_BIN_EXE_playhouse");
    let (code, out, err) = replay(path, &["--schedule-only", "--diff", program]);
    assert!(code == Some(0) && out.ends_with(" lines, all equal\n"), "{out}{err}");
}

/// The steps of a recording are listed where there is no terminal.
fn listed(path: &Path) {
    let (code, out, err) = replay(path, &["--step", "--until", "9"]);
    assert_eq!(code, Some(0), "{err}");
    let steps: Vec<_> = out.lines().filter(|line| line.starts_with("step ")).collect();
    assert_eq!(steps.len(), 9, "{out}");
    assert!(out.contains("  computes ") && out.contains("  result of request "), "{out}");
    let (code, out, err) = replay(path, &["--step", "--until", "3", "--output", "json"]);
    let lines: Vec<Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(code == Some(0) && lines.len() == 3, "{out}{err}");
    assert_eq!(lines[2]["step"], 3);
    let bytes = fs::read(path).unwrap();
    let cut = path.with_extension("cut");
    fs::write(&cut, &bytes[..bytes.len() / 2]).unwrap();
    let (code, out, err) = replay(&cut, &["--schedule-only"]);
    assert_eq!(code, Some(0), "{err}");
    assert!(err.contains("note: the last frame is cut off"), "{err}");
    assert!(out.contains("end of the recording: the last frame is cut off"), "{out}");
}
