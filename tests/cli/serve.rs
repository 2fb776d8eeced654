//! `playhouse serve`, from its banner to its end.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Child, ChildStderr, Command},
};

use crate::process::playhouse;

struct Server {
    child: Child,
    address: String,
    log: BufReader<ChildStderr>,
}

impl Server {
    fn start(flags: &[&str]) -> Self {
        let small = ["serve", "--port", "0", "--max-model-len", "4096", "--max-num-seqs", "4"];
        let mut child = playhouse(&[&small[..], flags].concat()).spawn();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let (mut line, mut address) = (String::new(), String::new());
        while !line.starts_with("Try:") {
            line.clear();
            assert!(log.read_line(&mut line).unwrap() > 0, "the server ended");
            if let Some((_, rest)) = line.split_once(" on http://") {
                address = rest.trim().to_owned();
            }
        }
        Self { child, address, log }
    }

    fn connect(&self, request: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        stream
    }

    fn get(&self, path: &str) -> String {
        let mut answer = String::new();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        self.connect(&request).read_to_string(&mut answer).unwrap();
        answer
    }

    /// A completion that takes a while, as a stream.
    fn stream(&self, max_tokens: u32) -> TcpStream {
        let body = format!(
            r#"{{"model":"demo-model","prompt":"x","max_tokens":{max_tokens},"ignore_eos":true,"stream":true}}"#
        );
        let length = body.len();
        self.connect(&format!(
            "POST /v1/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        ))
    }

    /// Reads the log up to a line that has `text`.
    fn until_logged(&mut self, text: &str) -> String {
        let mut line = String::new();
        while !line.contains(text) {
            line.clear();
            assert!(self.log.read_line(&mut line).unwrap() > 0, "the server ended");
        }
        line
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }

    /// Exit code, and what was logged after the banner.
    fn end(mut self) -> (Option<i32>, String) {
        let mut rest = String::new();
        self.log.read_to_string(&mut rest).unwrap();
        (self.child.wait().unwrap().code(), rest)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A test that failed leaves no server behind; one that waited has none to kill.
        let _ = self.child.kill();
    }
}

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
        // The connection may be reset: either way the stream breaks off.
        let _ = stream.read_to_string(&mut rest);
        assert!(!rest.contains("[DONE]"));
    }
}

#[test]
fn requests_that_outlast_the_drain_are_told_by_the_exit_code() {
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
    let mut server = Server::start(&["--log-stats-interval-s", "0.2"]);
    let stream = server.stream(4000);
    let line = server.until_logged("Avg generation throughput: ");
    assert!(line.contains("Running: 1 reqs, Waiting: 0 reqs"), "{line}");
    drop(stream);
    server.signal("-INT");
    assert_eq!(server.end().0, Some(0));
}

#[test]
fn a_taken_port_is_told_at_once() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let stderr = playhouse(&["serve", "--port", &port]).fails_with(1);
    assert!(stderr.contains(&format!("cannot listen on 127.0.0.1:{port}")), "{stderr}");
}

/// The binary of a test build can be struck. The ledger may die once a minute.
#[test]
fn a_supervisor_that_gives_up_ends_the_process_with_its_own_code() {
    let server = Server::start(&["--restart-tolerance", "1"]);
    let body = r#"{"role":"ledger","how":"kill"}"#;
    let strike = format!(
        "POST /chaos/kill HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut answer = String::new();
    server.connect(&strike).read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    // Once it is back, which takes microseconds, it is struck again; then nobody may answer.
    while server.get("/chaos/tree").matches(r#""restarts":1"#).count() == 0 {}
    let _ = server.connect(&strike).read_to_string(&mut answer);
    let (code, log) = server.end();
    assert_eq!(code, Some(70), "{log}");
    assert!(log.contains("gave up"), "{log}");
}
