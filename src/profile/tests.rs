//! Tests on made-up spans, whose figures are known.

use std::time::{Duration, Instant};

use playhouse_kernels::profile::Span;
use serde_json::Value;

use super::*;

fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

/// Returns a profile of two steps. The first takes 100 µs, and its forward pass runs on another
/// thread. The second takes 50 µs and has no forward pass.
fn profile() -> Profile {
    let begin = Instant::now();
    let span = |name, from, to| Span { name, begin: begin + us(from), end: begin + us(to) };
    let thread = |name: &str, spans| ThreadSpans { thread: name.to_owned(), spans, num_lost: 0 };
    let handled = |edge, from, to, busy| Handled {
        role: "scheduler",
        index: 0,
        edge,
        begin: begin + us(from),
        end: begin + us(to),
        busy: us(busy),
    };
    let device = thread(
        "device",
        vec![
            span("lay_out", 10, 20),
            span("forward", 20, 90),
            span("step", 10, 110),
            span("sampling", 200, 240),
            span("step", 200, 250),
        ],
    );
    let compute = thread(
        "compute",
        vec![span("norm", 25, 30), span("qkv", 30, 50), span("norm", 50, 60), span("o", 300, 301)],
    );
    Profile {
        begin,
        wall: us(400),
        threads: vec![device, compute],
        handled: vec![
            handled("ledger->scheduler", 0, 10, 10),
            handled("worker->scheduler", 110, 150, 8),
        ],
        num_handled_lost: 3,
    }
}

#[test]
fn figures_add_up_to_the_steps() {
    let summary = profile().summary();
    assert_eq!((summary.steps, summary.step_time, summary.wall), (2, us(150), us(400)));
    let row = |name: &str| {
        let row = summary.ops.iter().find(|row| row.name == name).unwrap();
        (row.calls, row.total, row.own)
    };
    assert_eq!(row("forward"), (1, us(70), us(35)));
    assert_eq!(row("norm"), (2, us(15), us(15)));
    assert_eq!(row("step"), (2, us(150), us(30)));
    // The operation `o` lies outside the steps.
    let outside = us(1);
    assert_eq!(summary.ops.iter().map(|row| row.own).sum::<Duration>() - outside, us(150));
    assert!(summary.ops.is_sorted_by_key(|row| std::cmp::Reverse(row.own)));
    let scheduler = &summary.actors[0];
    assert_eq!((scheduler.messages, scheduler.busy, scheduler.total), (2, us(18), us(50)));
    assert_eq!(scheduler.busy_max, us(10));
}

#[test]
fn a_trace_has_a_track_for_each_thread_and_actor() {
    let profile = profile();
    let mut out = Vec::new();
    profile.write_trace(&mut out).unwrap();
    let trace: Value = serde_json::from_slice(&out).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let named = |name: &str| -> Vec<&str> {
        let of = events.iter().filter(|event| event["ph"] == "M" && event["name"] == name);
        of.map(|event| event["args"]["name"].as_str().unwrap()).collect()
    };
    assert_eq!(named("process_name"), ["model", "actors"]);
    assert_eq!(named("thread_name"), ["device", "compute", "scheduler 0"]);
    let complete: Vec<_> = events.iter().filter(|event| event["ph"] == "X").collect();
    assert_eq!(complete.len(), 11);
    let forward = complete.iter().find(|event| event["name"] == "forward").unwrap();
    assert_eq!((forward["ts"].as_f64(), forward["dur"].as_f64()), (Some(20.0), Some(70.0)));
    let waited = complete.iter().find(|event| event["name"] == "worker->scheduler").unwrap();
    assert_eq!(waited["args"]["busy_us"], 8.0);
    assert_eq!(profile.num_lost(), 3);
}

#[test]
fn an_empty_profile_has_a_summary_and_a_trace() {
    let profile = Profile { threads: Vec::new(), handled: Vec::new(), ..profile() };
    let summary = profile.summary();
    assert_eq!((summary.steps, summary.ops.len(), summary.actors.len()), (0, 0, 0));
    let mut out = Vec::new();
    profile.write_trace(&mut out).unwrap();
    assert!(serde_json::from_slice::<Value>(&out).is_ok());
}
