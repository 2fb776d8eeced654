//! `playhouse serve`, from its banner to its end.

use std::{
    io::{BufRead, BufReader, Read},
    path::Path,
    process::Command,
};

use crate::{process::playhouse, server::Server};

#[test]
fn it_serves_what_its_banner_says_until_sigterm() {
    let server = Server::start(&[]);
    assert!(server.get("/health").starts_with("HTTP/1.1 200"));
    assert!(server.get("/v1/models").contains("demo-model"));
    let metrics = server.get("/metrics");
    assert!(metrics.contains("playhouse:num_requests_running"), "{metrics}");
    server.signal("-TERM");
    let (code, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("drained: all requests were answered"), "{log}");
}

#[test]
fn the_requests_that_its_banner_suggests_are_answered() {
    let runners: [(&str, &[&str]); 2] = [
        ("generate", &["/v1/completions", "/v1/chat/completions"]),
        ("pooling", &["/v1/embeddings", "/rerank"]),
    ];
    for (runner, routes) in runners {
        let mut server = Server::start(&["--runner", runner]);
        let page = format!("  page      http://{}/ in a browser, to ", server.address);
        let (_, use_of_it) = server.banner.split_once(&page).unwrap();
        assert_eq!(use_of_it.starts_with("chat"), runner == "generate", "{use_of_it}");
        assert!(server.get("/").contains("<!doctype html>"));
        for route in routes {
            let command = server.until_logged(route);
            let to_try = format!("http://{}{route} ", server.address);
            assert!(command.contains(&to_try), "{command}");
            let body = server.until_logged("-d '");
            let body = body.trim().trim_start_matches("-d '").trim_end_matches('\'');
            let mut answer = String::new();
            server.post(route, body).read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 200"), "{body}: {answer}");
        }
    }
}

#[test]
fn the_format_of_activations_is_shown() {
    for (activations, expected) in [("auto", "int8"), ("none", "bfloat16")] {
        let server =
            Server::start(&["--quantization", "int4", "--activation-quantization", activations]);
        let told = format!("linear layers in int4 of 32 by activations in {expected}");
        assert!(server.banner.contains(&told), "{}", server.banner);
        let info = server.get("/server_info");
        let told =
            format!(r#""quantized_weights":{{"format":"int4 of 32","activations":"{expected}"}}"#);
        assert!(info.contains(&told), "{info}");
    }
}

#[test]
fn sigterm_lets_running_requests_finish() {
    let server = Server::start(&[]);
    let mut stream = server.stream(300);
    let mut first = [0; 1];
    stream.read_exact(&mut first).unwrap();
    server.signal("-TERM");
    let mut rest = String::new();
    stream.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("data: [DONE]"), "{rest}");
    assert!(rest.contains("\"finish_reason\":\"length\""));
    assert_eq!(server.end().0, Some(0));
}

#[test]
fn a_second_signal_does_not_wait() {
    for (signal, code) in [("-INT", 130), ("-TERM", 143)] {
        let mut server = Server::start(&["--log-level", "info"]);
        let mut stream = server.stream(4000);
        stream.read_exact(&mut [0]).unwrap();
        server.signal("-TERM");
        server.until_logged("draining; a second signal");
        server.signal(signal);
        let (ended, log) = server.end();
        assert_eq!(ended, Some(code), "{log}");
        assert!(log.contains("ended at once"), "{log}");
        let mut rest = String::new();
        // The connection may be reset. In both cases the stream breaks off.
        let _ = stream.read_to_string(&mut rest);
        assert!(!rest.contains("[DONE]"));
    }
}

/// A container's first process has no default signal handling: a signal that it does not handle
/// itself has no effect.
#[test]
fn a_signal_while_the_model_loads_ends_it() {
    let folder = tempfile::tempdir().unwrap();
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/demo-model");
    let config = std::fs::read_to_string(demo.join("config.json")).unwrap();
    let mut config: serde_json::Value = serde_json::from_str(&config).unwrap();
    // Making up weights for so many layers takes longer than sending a signal.
    config["num_hidden_layers"] = 1000.into();
    config["layer_types"] = serde_json::Value::Null;
    std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    let (model, tokenizer) = (folder.path().to_str().unwrap(), demo.to_str().unwrap());
    let from = ["-m", model, "--tokenizer", tokenizer, "--load-format", "dummy"];
    let flags = [&["serve", "--port", "0", "--log-level", "debug"], &from[..]].concat();
    for (signal, code) in [("-INT", 130), ("-TERM", 143)] {
        let mut child = playhouse(&flags).spawn();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("reading weights") {
            line.clear();
            assert!(log.read_line(&mut line).unwrap() > 0, "ended before it read weights");
        }
        let pid = child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
        std::io::copy(&mut log, &mut std::io::sink()).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(code));
    }
}

#[test]
fn requests_that_outlast_the_drain_change_the_exit_code() {
    let server = Server::start(&["--shutdown-timeout", "0"]);
    let mut stream = server.stream(4000);
    stream.read_exact(&mut [0]).unwrap();
    server.signal("-TERM");
    let (code, log) = server.end();
    assert_eq!(code, Some(1), "{log}");
    assert!(
        log.contains("error: open requests cut off at the end of shutdown_timeout: 1"),
        "{log}"
    );
}

#[test]
fn a_busy_server_logs_its_throughput() {
    let mut server = Server::start(&["--log-stats-interval-secs", "0.2"]);
    let stream = server.stream(4000);
    // The first line may be about the time before the request ran.
    let line = server.until_logged("Running: 1 reqs, Waiting: 0 reqs");
    assert!(line.contains("Avg generation throughput: "), "{line}");
    drop(stream);
    server.signal("-INT");
    assert_eq!(server.end().0, Some(0));
}

#[test]
fn what_clients_say_is_not_in_the_log_nor_in_the_metrics() {
    const MARKER: &str = "xyzzy-plugh";
    let server = Server::start(&["--log-level", "debug", "--max-json-depth", "9"]);
    let requests = [
        ("/v1/completions", r#"{"prompt":"MARKER","max_tokens":4}"#, "200"),
        (
            "/v1/completions",
            r#"{"prompt":"MARKER","max_tokens":4,"echo":true,"stream":true}"#,
            "200",
        ),
        ("/v1/completions", r#"{"prompt":["MARKER"],"min_characters":1}"#, "200"),
        ("/v1/completions", r#"{"prompt":{"MARKER":1}}"#, "400"),
        ("/v1/completions", r#"{"prompt":"MARKER","temperature":"MARKER"}"#, "400"),
        ("/v1/completions", r#"{"prompt":"MARKER","max_tokens":1000000}"#, "400"),
        ("/v1/completions", r#"{"prompt":"MARKER","x":[[[[[[[[[["MARKER"]]]]]]]]]]}"#, "400"),
        ("/v1/completions", r#"{"prompt":"MARKER"#, "400"),
        (
            "/v1/chat/completions",
            r#"{"messages":[{"role":"user","content":"MARKER"}],"max_tokens":4}"#,
            "200",
        ),
        ("/v1/chat/completions", r#"{"messages":[{"role":"MARKER","content":5}]}"#, "400"),
        ("/v1/chat/completions", r#"{"model":"MARKER","messages":[]}"#, "404"),
        ("/tokenize", r#"{"prompt":"MARKER"}"#, "200"),
        ("/MARKER?MARKER", r#"{"prompt":"MARKER"}"#, "404"),
    ];
    for (path, body, status) in requests {
        let mut answer = String::new();
        let mut connection =
            server.post(&path.replace("MARKER", MARKER), &body.replace("MARKER", MARKER));
        connection.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{body}: {answer}");
    }
    let metrics = server.get("/metrics");
    assert!(!metrics.contains(MARKER), "{metrics}");
    let counted = r#"playhouse:unknown_request_fields_total{route="/v1/completions"} 1"#;
    assert!(metrics.contains(counted), "{metrics}");
    server.signal("-TERM");
    let (code, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("request ended"), "{log}");
    assert!(log.contains("unknown request fields") && log.contains("DEBUG"), "{log}");
    assert!(!log.contains(MARKER), "{log}");
}

#[test]
fn a_taken_port_is_reported_at_once() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let stderr = playhouse(&["serve", "--port", &port]).fails_with(1);
    assert!(stderr.contains(&format!("cannot listen on 127.0.0.1:{port}")), "{stderr}");
    assert!(stderr.starts_with("error: the server did not start: "), "{stderr}");
}

#[test]
fn a_hangup_has_the_keys_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys");
    std::fs::write(&path, "first\n").unwrap();
    let mut server = Server::start(&["--api-key-file", path.to_str().unwrap()]);
    assert!(server.get("/v1/models").starts_with("HTTP/1.1 401"));
    server.signal("-HUP");
    assert!(server.until_logged("the API keys were read again").contains("keys=1"));
    server.signal("-TERM");
    assert_eq!(server.end().0, Some(0));
}

#[test]
fn a_supervisor_that_gives_up_ends_the_process_with_its_own_code() {
    // So low a tolerance allows the root no rebuild.
    let server = Server::start(&["--allow-chaos", "--restart-tolerance", "0.1"]);
    let body = r#"{"role":"ledger","how":"kill"}"#;
    let strike = format!(
        "POST /chaos/kill HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut answer = String::new();
    server.connect(&strike).read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    // The ledger may die three times. The test strikes it after each restart, until no server
    // answers.
    while let Ok(mut connection) = server.try_connect(&strike) {
        let _ = connection.read_to_string(&mut String::new());
    }
    let (code, log) = server.end();
    assert_eq!(code, Some(70), "{log}");
    assert!(log.contains("gave up"), "{log}");
}
