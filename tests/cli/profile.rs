//! `playhouse profile`: its figures add up, and a viewer can open its trace.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::process::playhouse;

fn f64_of(value: &Value, name: &str) -> f64 {
    value[name].as_f64().unwrap()
}

/// Complete events (name, begin, end) by track (process, thread), in the order in which they begin.
type Tracks = BTreeMap<(u64, u64), Vec<(String, f64, f64)>>;

fn tracks(trace: &Value) -> Tracks {
    let mut tracks = Tracks::new();
    for event in trace["traceEvents"].as_array().unwrap() {
        let phase = event["ph"].as_str().unwrap();
        let track = (event["pid"].as_u64().unwrap(), event["tid"].as_u64().unwrap());
        let name = event["name"].as_str().unwrap().to_owned();
        if phase == "M" {
            assert!(event["args"]["name"].is_string(), "{event}");
            continue;
        }
        assert_eq!(phase, "X", "{event}");
        let (ts, dur) = (f64_of(event, "ts"), f64_of(event, "dur"));
        assert!(ts >= 0.0 && dur >= 0.0, "{event}");
        tracks.entry(track).or_default().push((name, ts, ts + dur));
    }
    for events in tracks.values_mut() {
        events.sort_by(|(_, a, x), (_, b, y)| a.total_cmp(b).then(y.total_cmp(x)));
    }
    tracks
}

/// Asserts that of two events of a track, one contains the other or they do not touch. Times are
/// rounded to nanoseconds.
fn assert_nested(events: &[(String, f64, f64)]) {
    let mut open: Vec<f64> = Vec::new();
    for (name, begin, end) in events {
        while open.last().is_some_and(|outer| *outer <= begin + 2e-3) {
            open.pop();
        }
        assert!(open.last().is_none_or(|outer| *end <= outer + 2e-3), "{name} at {begin}");
        open.push(*end);
    }
}

#[test]
fn figures_add_up_and_the_trace_can_be_opened() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.json");
    let json = playhouse(&[
        "profile",
        "--batch-size=3",
        "--input-len=20",
        "--output-len=6",
        "--num-iters=2",
        "--max-model-len=256",
        "--output=json",
        "--trace",
        path.to_str().unwrap(),
    ]);
    let profile: Value = serde_json::from_str(&json.succeeds()).unwrap();
    assert_eq!(profile["num_lost"], 0);
    // Two batches of three requests. If the three run together, there is a step for each token. If
    // each comes after the end of the one before, its end takes one step more.
    let steps = profile["steps"].as_u64().unwrap();
    assert!((2 * 6..=2 * 3 * (6 + 1)).contains(&steps), "{steps}");
    let ops = profile["ops"].as_array().unwrap();
    let op = |name: &str| {
        let found = ops.iter().find(|op| op["name"] == name);
        assert!(found.is_some(), "no {name} in {profile}");
        found.unwrap()
    };
    for name in [
        "lay_out",
        "embedding",
        "norm",
        "qkv",
        "qk_norm_rope",
        "kv_write",
        "attention",
        "o",
        "gate_up",
        "down",
        "lm_head",
        "sampling",
        "forward",
    ] {
        assert!(f64_of(op(name), "own_us") > 0.0, "{name}");
    }
    assert_eq!(op("qkv")["calls"], op("o")["calls"]);
    let (own, all) =
        (ops.iter().map(|op| f64_of(op, "own_us")).sum::<f64>(), f64_of(&profile, "step_time_us"));
    // On a busy machine a thread may note the end of its work after the step that waited for it has
    // ended. The work then counts beside the step.
    assert!((own / all - 1.0).abs() < 1e-2, "{own} of {all}");
    assert!(all < f64_of(&profile, "wall_us"));
    let actors = profile["actors"].as_array().unwrap();
    for role in ["scheduler", "ledger", "kv_cache", "worker", "detokenizer", "streamer", "input"] {
        let messages: u64 = actors
            .iter()
            .filter(|actor| actor["role"] == role)
            .map(|actor| actor["messages"].as_u64().unwrap())
            .sum();
        assert!(messages > 0, "{role} in {profile}");
    }
    assert!(actors.iter().all(|actor| f64_of(actor, "busy_us") <= f64_of(actor, "total_us")));

    let trace: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let tracks = tracks(&trace);
    tracks.values().for_each(|events| assert_nested(events));
    let total = |name: &str| {
        let all = tracks.values().flatten().filter(|(event, ..)| event == name);
        all.map(|(_, begin, end)| end - begin).sum::<f64>()
    };
    for name in ["step", "attention"] {
        let figure = f64_of(op(name), "total_us");
        assert!((total(name) / figure - 1.0).abs() < 1e-3, "{name}: {figure}");
    }
}
