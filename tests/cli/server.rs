//! `playhouse serve` as a process.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Child, ChildStderr, Command},
    thread::park_timeout,
    time::{Duration, Instant},
};

use crate::process::{Run, playhouse};

/// Returns the body of a completion that adds more than 4 KiB to the log at level `debug`. It has
/// unknown fields, whose names are written in escapes.
pub(crate) fn wordy() -> String {
    let names = (0..8).map(|number| format!(r#""{number}{}":0"#, "\u{e000}".repeat(63)));
    let names: Vec<_> = names.collect();
    format!(r#"{{"prompt":"x","max_tokens":1,{}}}"#, names.join(","))
}

/// Longest wait for the next bytes of an answer.
const PATIENCE: Duration = Duration::from_secs(120);

/// A server on a free port.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: String,
    /// The lines that the operator sees at the start.
    pub(crate) banner: String,
    log: BufReader<ChildStderr>,
}

impl Server {
    /// Starts a server and waits until it listens.
    pub(crate) fn start(flags: &[&str]) -> Self {
        Self::start_with(flags, |run| run)
    }

    /// Starts a server in the environment that `change` makes.
    pub(crate) fn start_with(flags: &[&str], change: impl FnOnce(Run) -> Run) -> Self {
        let small = ["serve", "--port", "0", "--max-model-len", "4096", "--max-num-seqs", "4"];
        let mut child = change(playhouse(&[&small[..], flags].concat())).spawn();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let (mut line, mut address, mut banner) = (String::new(), String::new(), String::new());
        while !line.starts_with("Try:") {
            line.clear();
            assert!(log.read_line(&mut line).unwrap() > 0, "the server ended");
            if let Some((_, rest)) = line.split_once(" on http://") {
                address = rest.trim().to_owned();
            }
            banner += &line;
        }
        Self { child, address, banner, log }
    }

    /// Sends `request` as it stands.
    pub(crate) fn connect(&self, request: &str) -> TcpStream {
        self.try_connect(request).unwrap()
    }

    /// Sends `request` as it stands to a server that may have ended.
    pub(crate) fn try_connect(&self, request: &str) -> std::io::Result<TcpStream> {
        let mut stream = TcpStream::connect(&self.address)?;
        stream.write_all(request.as_bytes())?;
        Ok(stream)
    }

    /// Returns the whole answer to a GET.
    pub(crate) fn get(&self, path: &str) -> String {
        let mut answer = String::new();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        let mut stream = self.connect(&request);
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Starts a completion that takes a while. Returns its stream.
    pub(crate) fn stream(&self, max_tokens: u32) -> TcpStream {
        self.post(
            "/v1/completions",
            &format!(
                r#"{{"model":"demo-model","prompt":"x","max_tokens":{max_tokens},"ignore_eos":true,"stream":true}}"#
            ),
        )
    }

    /// Sends a JSON body.
    pub(crate) fn post(&self, path: &str, body: &str) -> TcpStream {
        let length = body.len();
        self.connect(&format!(
            "POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        ))
    }

    /// Reads the log up to a line that has `text`. Returns the line.
    pub(crate) fn until_logged(&mut self, text: &str) -> String {
        let mut line = String::new();
        while !line.contains(text) {
            line.clear();
            assert!(self.log.read_line(&mut line).unwrap() > 0, "the server ended");
        }
        line
    }

    /// Returns the resident memory of the server and its engine processes, without that of files.
    #[cfg(target_os = "linux")]
    pub(crate) fn resident_bytes(&self) -> u64 {
        let own = self.child.id().to_string();
        let tasks = std::fs::read_dir(format!("/proc/{own}/task")).unwrap();
        let children = tasks.map(|task| {
            let children = task.unwrap().path().join("children");
            std::fs::read_to_string(children).unwrap_or_default()
        });
        let children: String = children.collect();
        let pids = children.split_whitespace().chain([&own[..]]);
        let resident = pids.map(|pid| {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
            // Pages of the program's file come and go.
            let fields = ["RssAnon:", "RssShmem:"].map(|field| {
                let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
                line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
            });
            1024 * fields.iter().sum::<u64>()
        });
        resident.sum()
    }

    /// Sends the signal that `kill` calls `name`.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }

    /// Returns the exit code of a server that ends while its log is not read.
    pub(crate) fn end_unread(mut self) -> Option<i32> {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < deadline, "the server does not end");
            park_timeout(Duration::from_millis(20));
        }
    }

    /// Returns the value of a metric without labels.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let answer = self.get("/metrics");
        let value = answer.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        assert!(value.is_some(), "{name} is not in {answer}");
        value.unwrap().parse().unwrap()
    }

    /// Waits for the end. Returns the exit code and the log after the banner.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        let mut rest = String::new();
        self.log.read_to_string(&mut rest).unwrap();
        (self.child.wait().unwrap().code(), rest)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A failed test must not leave a server behind. If the server has ended, the kill fails.
        let _ = self.child.kill();
    }
}
