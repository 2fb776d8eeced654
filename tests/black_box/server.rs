//! The program as a server.

use std::{
    io::{BufRead, BufReader, Read},
    process::{Child, Command},
    thread::JoinHandle,
};

use crate::process::{Run, playhouse};

/// A program that serves the demo model from a KV cache too small for the workload.
pub(crate) struct Server {
    child: Child,
    pub(crate) url: String,
    /// Keeps reading the log, so that the program never waits for a reader.
    log: Option<JoinHandle<String>>,
}

impl Server {
    /// Starts the program with further flags.
    pub(crate) fn start(more: &[&str]) -> Self {
        let sizes = "--max-num-seqs 16 --max-num-batched-tokens 128 --num-gpu-blocks-override 64";
        Self::of_size(sizes, more)
    }

    /// Starts the program with flags for its sizes, and further ones.
    pub(crate) fn of_size(sizes: &str, more: &[&str]) -> Self {
        let flags =
            "serve --port 0 --served-model-name demo --max-model-len 512 --allow-chaos".split(' ');
        let flags: Vec<_> = flags.chain(sizes.split(' ')).chain(more.iter().copied()).collect();
        Self::of(playhouse(&flags))
    }

    /// Starts a server, and waits until it listens.
    pub(crate) fn of(run: Run) -> Self {
        let mut child = run.spawn();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let (mut line, mut url) = (String::new(), String::new());
        while !line.starts_with("Try:") {
            line.clear();
            assert!(log.read_line(&mut line).unwrap() > 0, "the server ended");
            if let Some((_, address)) = line.split_once(" on http://") {
                url = format!("http://{}", address.trim());
            }
        }
        let read_on = move || {
            let mut rest = String::new();
            // Part of a log is better than none.
            let _ = log.read_to_string(&mut rest);
            rest
        };
        Self { child, url, log: Some(std::thread::spawn(read_on)) }
    }

    /// Returns the process id of the program.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the end of the program. Its log may go on, written by another process.
    pub(crate) fn ended(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }

    /// Returns the log once all its writers have ended.
    pub(crate) fn log(mut self) -> String {
        self.log.take().unwrap().join().unwrap()
    }

    /// Asks the server to end. Returns its exit code and its log.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        let code = self.child.wait().unwrap().code();
        (code, self.log.take().unwrap().join().unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A failed test must not leave a server behind. After `end` there is none to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
