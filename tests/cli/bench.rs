//! `playhouse bench` with runs that are as short as possible.

use serde_json::Value;

use crate::process::playhouse;

const SMALL: &[&str] = &["--max-model-len", "256", "--max-num-seqs", "8", "--output", "json"];

fn bench(arguments: &[&str]) -> Value {
    let output = playhouse(&[&["bench"], arguments, SMALL].concat()).succeeds();
    serde_json::from_str(&output).unwrap()
}

#[test]
fn chaos_loses_nothing() {
    let figures = bench(&["chaos", "--kills", "22", "--interval-ms", "40", "--clients", "8"]);
    let roles = figures["roles"].as_array().unwrap();
    assert_eq!(roles.len(), 11);
    for row in roles.iter().chain([&figures["all"]]) {
        assert_eq!((&row["requests_lost"], &row["tokens_wrong"]), (&0.into(), &0.into()), "{row}");
    }
    assert_eq!(figures["all"]["kills"], 22);
    let peace = &figures["fault_free"]["figures"];
    assert_eq!((&peace["tokens_recomputed"], &peace["tokens_wrong"]), (&0.into(), &0.into()));
    let recomputed = |role: usize| roles[role]["tokens_recomputed"].as_u64().unwrap();
    assert!(recomputed(0) > 0, "a new scheduler computes some tokens again: {figures}");
}

#[test]
fn overload_counts_every_request() {
    let figures = bench(&["overload", "--requests", "400", "--max-num-queued-reqs", "8"]);
    let count = |name: &str| figures[name].as_u64().unwrap();
    assert_eq!(count("served") + count("refused"), 400, "{figures}");
    assert_eq!(figures["failed"], serde_json::json!({}));
    assert!(figures["peak_requests_per_s"].as_f64().unwrap() > 0.0);
}

#[test]
fn nonsense_is_refused() {
    let stderr = playhouse(&["bench", "overload", "--factor", "0"]).fails_with(2);
    assert!(stderr.contains("--factor must be above 0, got 0"), "{stderr}");
    let stderr = playhouse(&["bench", "chaos", "--role", "sheduler"]).fails_with(2);
    assert!(stderr.contains("there is no role \"sheduler\""), "{stderr}");
}
