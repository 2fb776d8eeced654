//! The KV cache outlives its engine process: streams of every kind equal those of a calm run, and
//! few tokens are computed again. Damaged content costs tokens, and changes none.
#![cfg(target_os = "linux")]
#![allow(clippy::print_stdout, reason = "the figures of the test")]

use std::{
    fs::{self, File},
    os::unix::fs::{FileExt, MetadataExt},
    sync::Arc,
    time::Duration,
};

use reqwest::Client;
use tokio::time::sleep;

use crate::{
    engine_process::{Arrivals, asks, difference, kill, replay},
    server::Server,
};

/// Rooms for all requests, so that none is preempted.
const SIZES: &str = "--max-num-seqs 32 --max-num-batched-tokens 512 --num-gpu-blocks-override 900";
const WAYS: [&str; 3] = ["SIGKILL", "SIGSEGV", "SIGSTOP"];
const KILLS: usize = 9;
/// Most tokens that a kill may cost as a rule, with some twenty requests in flight.
const TOKENS_MAX: u64 = 100;
/// Most tokens that any kill may cost. The blocks of a step's prompts are lost if the process ends
/// before the next step is planned.
const TOKENS_OF_PROMPTS_MAX: u64 = 100 + 512;

/// Returns the number of tokens that were computed again so far.
async fn recomputed(client: &Client, url: &str) -> u64 {
    let metrics = client.get(format!("{url}/metrics")).send().await.unwrap();
    let metrics = metrics.text().await.unwrap();
    let is_count = |line: &&str| line.starts_with("playhouse:recomputed_tokens_total");
    let count = metrics.lines().find(is_count).and_then(|line| line.rsplit(' ').next());
    count.unwrap().parse::<f64>().unwrap() as u64
}

/// Returns the file in which processes leave their KV cache.
fn kept_file(server: &Server) -> File {
    let folder = format!("/proc/{}/fd", server.pid());
    let is_it = |path: &std::path::PathBuf| {
        fs::read_link(path).is_ok_and(|to| to.to_string_lossy().contains("playhouse-kv-cache"))
    };
    let mut paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let path = paths.find(is_it).expect("the front has the file");
    File::options().read(true).write(true).open(path).unwrap()
}

/// Checks that answers are those of a calm run.
fn check(calm: &[String], answers: &[String]) {
    for (index, (expected, actual)) in calm.iter().zip(answers).enumerate() {
        assert_eq!(difference(expected, actual), None, "request {index}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn few_tokens_are_computed_again() {
    let more = ["--spare-engine", "--tool-call-parser", "hermes"];
    let server = Server::of_size(SIZES, &more);
    let (client, arrivals, asks) = (Client::new(), Arrivals::new(), asks());
    let calm = replay(&client, &server.url, &asks, &arrivals).await;
    let mut costs = Vec::new();
    while costs.len() < KILLS {
        let run = {
            let (client, url, asks) = (client.clone(), server.url.clone(), asks.clone());
            let arrivals = Arc::clone(&arrivals);
            tokio::spawn(async move { replay(&client, &url, &asks, &arrivals).await })
        };
        while !run.is_finished() && costs.len() < KILLS {
            sleep(Duration::from_millis(400)).await;
            let how = WAYS[costs.len() % WAYS.len()];
            let before = recomputed(&client, &server.url).await;
            let [_, goes_on] = kill(&client, &server.url, how, &arrivals).await;
            sleep(Duration::from_millis(200)).await;
            let tokens = recomputed(&client, &server.url).await - before;
            println!("{how}: {tokens} tokens computed again, a stream goes on after {goes_on:?}");
            assert!(tokens <= TOKENS_OF_PROMPTS_MAX, "{how}: {tokens} tokens");
            costs.push(tokens);
        }
        check(&calm, &run.await.unwrap());
    }
    let num_dear = costs.iter().filter(|&&tokens| tokens > TOKENS_MAX).count();
    assert!(num_dear <= 2, "{costs:?}");
    let (code, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("the KV cache of the process before is adopted"), "{log}");
    assert!(!log.contains("is not adopted"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_core_dump_has_no_kv_cache() {
    let server = Server::of_size(SIZES, &[]);
    let engines = Client::new().get(format!("{}/engines", server.url)).send().await.unwrap();
    let engines: serde_json::Value = engines.json().await.unwrap();
    let pid = engines["engines"][0]["pid"].as_u64().unwrap();
    let filter = fs::read_to_string(format!("/proc/{pid}/coredump_filter")).unwrap();
    let filter = u32::from_str_radix(filter.trim(), 16).unwrap();
    // Linux: bits 1 and 3 are shared memory without and with a file, bit 0 is the process's own.
    assert_eq!(filter & 0b1011, 0b0001, "{filter:#x}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damaged_content_costs_tokens_and_changes_none() {
    let server = Server::of_size(SIZES, &["--tool-call-parser", "hermes"]);
    let (client, arrivals, asks) = (Client::new(), Arrivals::new(), asks());
    let calm = replay(&client, &server.url, &asks, &arrivals).await;
    let file = kept_file(&server);
    let metadata = file.metadata().unwrap();
    assert!(metadata.blocks() * 512 < metadata.len(), "its memory is allocated where it is used");
    for place in [0, 8 * 64 + 3, 8 * 64 + 8 * 5 * 40] {
        let run = {
            let (client, url, asks) = (client.clone(), server.url.clone(), asks.clone());
            let arrivals = Arc::clone(&arrivals);
            tokio::spawn(async move { replay(&client, &url, &asks, &arrivals).await })
        };
        sleep(Duration::from_millis(300)).await;
        let mut bytes = [0; 400];
        file.read_exact_at(&mut bytes, place).unwrap();
        bytes.iter_mut().for_each(|byte| *byte ^= 0x5A);
        file.write_all_at(&bytes, place).unwrap();
        kill(&client, &server.url, "SIGKILL", &arrivals).await;
        check(&calm, &run.await.unwrap());
    }
    let (code, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
    assert_eq!(log.matches("is not adopted").count(), 3, "{log}");
}
