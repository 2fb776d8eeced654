//! The files for operators in `configs/` name only things that exist.

use std::{
    collections::BTreeSet,
    fs,
    io::Read,
    path::Path,
    thread::park_timeout,
    time::{Duration, Instant},
};

use crate::{process::playhouse, server::Server};

fn config(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("configs").join(name)).unwrap()
}

/// Returns the metrics that `text` names, each with the name of its family in `/metrics`.
fn families(text: &str) -> BTreeSet<String> {
    let names = text.split("playhouse:").skip(1).map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_lowercase() && c != '_');
        let name = &rest[..end.unwrap_or(rest.len())];
        let name = name.strip_suffix("_bucket").unwrap_or(name);
        name.strip_suffix("_count").or(name.strip_suffix("_sum")).unwrap_or(name).to_owned()
    });
    names.filter(|name| !name.is_empty()).collect()
}

#[test]
fn the_dashboard_and_the_alerts_ask_for_metrics_that_exist() {
    let server = Server::start(&["--allow-chaos"]);
    let answer = |mut stream: std::net::TcpStream| {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    };
    answer(server.post("/v1/completions", r#"{"model": "demo-model", "prompt": "x"}"#));
    answer(server.post("/chaos/kill", r#"{"role": "scheduler", "how": "panic"}"#));
    let limit = Instant::now() + Duration::from_secs(60);
    let mut tree = String::new();
    while !tree.contains(r#""restarts":1"#) {
        assert!(Instant::now() < limit, "the scheduler is not replaced: {tree}");
        park_timeout(Duration::from_millis(5));
        tree = server.get("/chaos/tree");
    }
    answer(server.post("/v1/completions", r#"{"model": "demo-model", "prompt": "x"}"#));
    let there = families(&server.get("/metrics"));
    for file in ["grafana.json", "alerts.yml"] {
        let asked = families(&config(file));
        let missing: Vec<_> = asked.difference(&there).collect();
        assert!(asked.len() > 4 && missing.is_empty(), "{file}: {missing:?} of {asked:?}");
    }
    let dashboard: serde_json::Value = serde_json::from_str(&config("grafana.json")).unwrap();
    assert!(dashboard["panels"].as_array().unwrap().len() > 10);
}

#[test]
fn the_probes_and_flags_exist() {
    let server = Server::start(&[]);
    let manifest = config("kubernetes.yaml");
    let probes: Vec<_> = manifest.split("httpGet: {path: ").skip(1).collect();
    assert_eq!(probes.len(), 3);
    for probe in probes {
        let path = probe.split(',').next().unwrap();
        assert!(server.get(path).starts_with("HTTP/1.1 200"), "{path}");
    }
    // Otherwise, a Service named playhouse would set PLAYHOUSE_PORT.
    assert!(manifest.contains("\n      enableServiceLinks: false\n"));
    let help = playhouse(&["serve", "--help"]).succeeds();
    for file in ["kubernetes.yaml", "playhouse.service", "Dockerfile"] {
        let text = config(file);
        let commands = text.lines().filter(|line| {
            ["args:", "ExecStart=", "CMD "].iter().any(|start| line.trim().starts_with(start))
        });
        let flags: Vec<_> = commands
            .flat_map(|line| line.split([' ', '"', ',']))
            .filter(|word| word.starts_with("--"))
            .collect();
        assert!(!flags.is_empty(), "{file} starts no server");
        for flag in flags {
            assert!(help.contains(flag), "{file}: {flag}");
        }
    }
}

/// Checks the rules of `promtool check metrics`: each family has one HELP and one TYPE before its
/// samples, counters end in `_total`, and other names do not.
fn check_exposition(text: &str) {
    let mut kinds = std::collections::BTreeMap::new();
    let mut helped = BTreeSet::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            assert!(helped.insert(name.to_owned()) && help.len() > 5, "{line}");
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(kinds.insert(name.to_owned(), kind.to_owned()).is_none(), "{line}");
        } else {
            let name = line.split(['{', ' ']).next().unwrap();
            let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| {
                name.strip_suffix(end).filter(|family| kinds.contains_key(*family))
            });
            let family = family.unwrap_or(name);
            assert!(kinds.contains_key(family) && helped.contains(family), "{line}");
            assert!(line.rsplit(' ').next().unwrap().parse::<f64>().is_ok(), "{line}");
        }
    }
    for (name, kind) in kinds {
        // vLLM's name of a histogram.
        let is_total = name.ends_with("_total") && !name.ends_with("iteration_tokens_total");
        assert_eq!(is_total, kind == "counter", "{name} {kind}");
    }
}

#[test]
fn metrics_have_texts_and_vllms_names_on_request() {
    let server = Server::start(&["--metrics-prefix", "vllm", "--tool-call-parser", "hermes"]);
    let mut answer = String::new();
    let mut stream = server.post("/v1/completions", r#"{"model": "demo-model", "prompt": "x"}"#);
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.to_lowercase().contains("\r\nx-request-id: "), "{answer}");
    let tool = r#"{"type": "function", "function": {"name": "now"}}"#;
    let message = r#"{"role": "user", "content": "Hello"}"#;
    let chat = format!(r#"{{"messages": [{message}], "tools": [{tool}], "max_tokens": 1}}"#);
    for (path, body) in
        [("/v1/chat/completions", &*chat), ("/sleep?level=0", "{}"), ("/wake_up", "{}")]
    {
        let mut answer = String::new();
        server.post(path, body).read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
    }
    let response = server.get("/metrics");
    let (_, text) = response.split_once("\r\n\r\n").unwrap_or(("", &response));
    check_exposition(text);
    for name in [
        "vllm:num_requests_running{",
        "vllm:num_requests_waiting_by_reason{",
        "vllm:engine_sleep_state{",
        "vllm:prefix_cache_queries_total{",
        "vllm:kv_cache_usage_perc{",
        "vllm:request_prefill_time_seconds_bucket{",
        "vllm:request_decode_time_seconds_count{",
        "vllm:prompt_tokens_by_source_total{",
        "vllm:cache_config_info{",
        "vllm:build_info{",
        "process_resident_memory_bytes ",
        "process_cpu_seconds_total ",
    ] {
        assert!(text.lines().any(|line| line.starts_with(name)), "{name}: {text}");
    }
    assert!(!text.contains("playhouse:"), "{text}");
    let asked = "handler=\"/v1/completions\",method=\"POST\"";
    for line in [
        format!("http_requests_total{{{asked},status=\"2xx\"}} 1"),
        format!("http_request_duration_seconds_count{{{asked}}} 1"),
        "http_request_size_bytes_sum{handler=\"/v1/completions\"} 38".to_owned(),
        "http_response_size_bytes_count{handler=\"/v1/completions\"} 1".to_owned(),
        "vllm:sleep_mode_operation_duration_seconds_count{operation=\"sleep\"} 1".to_owned(),
        "vllm:sleep_mode_operation_duration_seconds_count{operation=\"wake\"} 1".to_owned(),
        "vllm:sleep_mode_operations_in_flight{operation=\"sleep\"} 0".to_owned(),
        "http_request_duration_highr_seconds_bucket{le=\"60\"} 4".to_owned(),
    ] {
        assert!(text.lines().any(|found| found == line), "{line}: {text}");
    }
    assert!(!text.contains("handler=\"/metrics\""), "{text}");
    let mut readings = text.lines().filter(|line| line.starts_with("vllm:tool_call_parser_inv"));
    let no_call = ["mode=\"non_streaming\"", "outcome=\"no_tool_call\"", "chat_completions\"} 1"];
    let is_counted = readings.any(|line| no_call.iter().all(|part| line.contains(part)));
    assert!(is_counted, "{text}");
    server.signal("-TERM");
    assert_eq!(server.end().0, Some(0));
}

#[test]
fn an_upgrade_without_a_key_says_where_it_belongs() {
    let server = Server::start(&["--api-key", "secret"]);
    let url = format!("http://{}", server.address);
    let told = playhouse(&["upgrade", "--url", &url]).fails_with(1);
    assert!(told.contains("no upgrade: 401 Unauthorized: Unauthorized; set "), "{told}");
    assert!(told.contains("PLAYHOUSE_ADMIN_API_KEY to an operator's key"), "{told}");
    // A client's key is known, and not enough.
    let known = playhouse(&["upgrade", "--url", &url]).env("PLAYHOUSE_ADMIN_API_KEY", "secret");
    let told = known.fails_with(1);
    assert!(told.contains("no upgrade: 403 Forbidden: "), "{told}");
}

#[test]
fn a_log_in_json_has_an_object_a_line() {
    let server = Server::start(&["--log-format", "json"]);
    server.signal("-TERM");
    let (code, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
    let lines: Vec<serde_json::Value> =
        log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let is_listening = |line: &&serde_json::Value| line["message"] == "draining";
    let draining = lines.iter().find(is_listening).unwrap_or_else(|| panic!("{log}"));
    assert!(draining["timestamp"].is_string() && draining["level"] == "INFO", "{draining}");
}

#[test]
fn a_health_check_says_whether_a_server_lives() {
    let server = Server::start(&["--allow-chaos"]);
    let port = server.address.rsplit(':').next().unwrap();
    let health =
        |flags: &[&str]| playhouse(&[&["health"], flags].concat()).env("PLAYHOUSE_PORT", port);
    assert_eq!(health(&[]).succeeds(), "");
    let url = format!("http://{}/", server.address);
    assert_eq!(playhouse(&["health", "--url", &url, "--path", "/readyz"]).succeeds(), "");
    let told = health(&["--path", "/nowhere"]).fails_with(1);
    assert!(told.contains("/nowhere: 404"), "{told}");
    // A listener that never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let told = playhouse(&["health", "--url", &url, "--timeout", "0.2"]).fails_with(1);
    assert!(told.contains("no answer in 0.2 s"), "{told}");
    drop(silent);
    let told = playhouse(&["health", "--url", &url]).fails_with(1);
    assert!(told.contains("onnect"), "{told}");
    for wrong in [["--timeout", "-1"], ["--path", "livez"]] {
        health(&wrong).fails_with(2);
    }
}
