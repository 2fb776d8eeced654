//! A server whose log is a pipe that is not read.

use std::{
    io::Read,
    time::{Duration, Instant},
};

use crate::server::{Server, wordy};

const DROPPED: &str = "playhouse:log_lines_dropped_total";
/// Longest time until the log overflows. The counter is set once a second, and a fast machine
/// answers a thousand requests in that time. So the test waits for a time, not for a number of
/// requests.
const PATIENCE: Duration = Duration::from_secs(60);

/// Sends requests until the log has more lines than the pipe and the queue hold.
fn overflow(server: &Server) {
    let deadline = Instant::now() + PATIENCE;
    while server.metric(DROPPED) == 0.0 {
        assert!(Instant::now() < deadline, "no line was dropped: the log says too little");
        for _ in 0..50 {
            let mut answer = String::new();
            server.post("/v1/completions", &wordy()).read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        }
        assert!(server.get("/health").starts_with("HTTP/1.1 200"));
    }
}

#[test]
fn a_log_that_is_not_read_delays_nothing_and_counts_lost_lines() {
    let mut server = Server::start(&["--log-level", "debug"]);
    assert_eq!(server.metric(DROPPED), 0.0);
    overflow(&server);
    assert!(server.get("/v1/models").starts_with("HTTP/1.1 200"));
    let told = server.until_logged("log lines were dropped");
    assert!(told.contains("WARN") && told.contains("dropped="), "{told}");
    server.signal("-TERM");
    let (code, log) = server.end();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("drained: all requests were answered"), "the end is logged: {log}");
}

#[test]
fn a_log_that_is_not_read_does_not_hold_up_the_end() {
    let server = Server::start(&["--log-level", "debug"]);
    overflow(&server);
    server.signal("-TERM");
    assert_eq!(server.end_unread(), Some(0));
}
