//! A server under a limit on the size of files. By default, a write beyond the limit ends the
//! process with a signal.
#![cfg(unix)]

use std::{
    fs::{self, File},
    io::{Read, Write},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Stdio},
    thread::park_timeout,
    time::Duration,
};

use crate::server::wordy;

/// The limit in blocks of 512 or 1024 bytes; the shell decides which.
const LIMIT_BLOCKS: &str = "32";
const LIMIT_BYTES_MIN: u64 = 32 * 512;

struct Limited(Child);

impl Drop for Limited {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(log: &Path, cache: &Path) -> Limited {
    let script = format!(r#"ulimit -f {LIMIT_BLOCKS} && exec "$0" "$@""#);
    let mut command = Command::new("sh");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_playhouse"), "serve", "--port", "0"]);
    command.args(["--max-model-len", "4096", "--log-level", "debug"]);
    command.args(["--dtype", "bfloat16", "--weights-cache"]).arg(cache);
    let log = File::create(log).unwrap();
    Limited(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap())
}

/// Waits for the banner.
fn address(server: &mut Limited, log: &Path) -> String {
    loop {
        let text = fs::read_to_string(log).unwrap();
        if let Some((_, rest)) = text.split_once(" on http://")
            && text.contains("Try:")
        {
            return rest.lines().next().unwrap().trim().to_owned();
        }
        assert_eq!(server.0.try_wait().unwrap(), None, "{text}");
        park_timeout(Duration::from_millis(20));
    }
}

fn ask(address: &str, request: &str, body: &str) -> String {
    let mut connection = TcpStream::connect(address).unwrap();
    let length = body.len();
    let request = format!(
        "{request} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    );
    connection.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_limit_on_the_size_of_files_costs_the_files_and_not_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let (log, cache) = (folder.path().join("log"), folder.path().join("cache"));
    let mut server = start(&log, &cache);
    let address = address(&mut server, &log);
    let text = fs::read_to_string(&log).unwrap();
    assert!(text.contains("the cache of packed weights is not written"), "{text}");
    assert!(text.contains("File too large"), "{text}");
    assert!(text.contains("limit on the size of files (ulimit -f)"), "{text}");
    assert_eq!(fs::read_dir(&cache).unwrap().count(), 0, "half a cache is removed");
    // The log reaches the limit as well.
    for round in 0.. {
        assert!(round < 1000, "the log never reached its limit");
        let answer = ask(&address, "POST /v1/completions", &wordy());
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        let metrics = ask(&address, "GET /metrics", "");
        let dropped = "playhouse:log_lines_dropped_total ";
        let count = metrics.lines().find_map(|line| line.strip_prefix(dropped));
        if count.is_some_and(|count| count != "0") {
            assert!(fs::metadata(&log).unwrap().len() >= LIMIT_BYTES_MIN);
            return;
        }
    }
}
