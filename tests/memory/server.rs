//! The program as a server process, and its memory.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    process::{Child, Command, Stdio},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use serde_json::json;

use crate::{
    MIB,
    client::{get, json_body, post},
};

/// Longest time until requests have released their memory.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server on a free port.
pub(crate) struct Server {
    child: Child,
    address: String,
    /// Keeps reading the log, so that the program never waits for a reader.
    _log: JoinHandle<()>,
}

impl Server {
    /// Starts the program that was built with the tests, with `flags`.
    pub(crate) fn start(flags: &[&str]) -> Self {
        Self::run(Command::new(env!("CARGO_BIN_EXE_playhouse")), flags)
    }

    /// Starts the program with the model in the folder `model`, whose context is short.
    pub(crate) fn start_with(model: &str, flags: &[&str]) -> Self {
        let small = "serve --port 0 --device cpu --served-model-name demo \
                     --kv-cache-memory-bytes 32MiB --model";
        let command = Command::new(env!("CARGO_BIN_EXE_playhouse"));
        let small = small.split_whitespace().chain([model]).chain(flags.iter().copied());
        Self::run_as(command, small)
    }

    /// Starts `command` with `flags`. The command is the program, or a program that limits and runs
    /// it.
    pub(crate) fn run(command: Command, flags: &[&str]) -> Self {
        let small = "serve --port 0 --device cpu --served-model-name demo --max-model-len 4096 \
                     --kv-cache-memory-bytes 64MiB";
        Self::run_as(command, small.split_whitespace().chain(flags.iter().copied()))
    }

    fn run_as<'a>(mut command: Command, flags: impl Iterator<Item = &'a str>) -> Self {
        let settings = std::env::vars_os().map(|(name, _)| name);
        for name in settings.filter(|name| name.to_string_lossy().starts_with("PLAYHOUSE_")) {
            command.env_remove(name);
        }
        command.args(flags);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let (mut line, mut address) = (String::new(), String::new());
        while !line.starts_with("Try:") {
            line.clear();
            assert!(log.read_line(&mut line).unwrap() > 0, "the server ended");
            if let Some((_, rest)) = line.split_once(" on http://") {
                address = rest.trim().to_owned();
            }
        }
        let log = std::thread::spawn(move || {
            let _ = log.read_to_end(&mut Vec::new());
        });
        Self { child, address, _log: log }
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Returns the resident memory of the process, in bytes.
    pub(crate) fn resident_bytes(&self) -> u64 {
        self.status("VmRSS")
    }

    /// Returns the peak of the resident memory since [`Server::reset_peak`], in bytes.
    pub(crate) fn peak_bytes(&self) -> u64 {
        self.status("VmHWM")
    }

    /// Starts a new measurement of the peak.
    pub(crate) fn reset_peak(&self) {
        fs::write(format!("/proc/{}/clear_refs", self.child.id()), "5").unwrap();
    }

    /// Returns whether the process runs.
    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    fn status(&self, field: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        1024 * line.unwrap().trim().trim_end_matches(" kB").parse::<u64>().unwrap()
    }

    /// Returns whether a small request is answered.
    pub(crate) async fn completes(&self) -> bool {
        let body = json!({"prompt": "Once", "max_tokens": 2, "ignore_eos": true});
        let sent = post(&self.address, "/v1/completions", &json_body(&body)).await;
        sent.is_some_and(|sent| sent.status == 200)
    }

    /// Waits until requests hold less than 1 MiB of memory. The server may hear of the end of a
    /// connection later than the client.
    pub(crate) async fn until_released(&self) {
        let limit = Instant::now() + PATIENCE;
        loop {
            let held = self.metric("playhouse:request_memory_bytes").await;
            if held < MIB as f64 {
                return;
            }
            assert!(Instant::now() < limit, "{held} bytes are still held");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Returns the value of a metric, whatever its labels.
    pub(crate) async fn metric(&self, name: &str) -> f64 {
        let metrics = get(&self.address, "/metrics").await.unwrap().text;
        let line = metrics.lines().find(|line| line.starts_with(&format!("{name}{{")));
        let value = line.expect(name).rsplit(' ').next().unwrap();
        value.parse().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
