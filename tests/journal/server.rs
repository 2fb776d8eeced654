//! The program with the demo model.

use std::{
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Child, Command},
    thread::JoinHandle,
};

use crate::process::program;

/// A running server.
pub(crate) struct Server {
    child: Child,
    pub(crate) url: String,
    /// Keeps reading the log, so that the program never waits for a reader.
    log: Option<JoinHandle<String>>,
}

impl Server {
    /// Starts a server with these flags, and with a journal in this folder.
    pub(crate) fn start(journal: Option<&Path>, flags: &[&str]) -> Self {
        Self::start_program(Path::new(env!("CARGO_BIN_EXE_playhouse")), journal, flags)
    }

    /// Starts the same from another file.
    pub(crate) fn start_program(file: &Path, journal: Option<&Path>, flags: &[&str]) -> Self {
        let fixed = ["serve", "--port", "0", "--served-model-name", "demo", "--log-level", "info"];
        let folder = journal.map(|journal| journal.to_str().unwrap());
        let journal = folder.map(|folder| ["--journal", folder]);
        let flags: Vec<_> = fixed.iter().chain(journal.iter().flatten()).chain(flags).collect();
        let flags: Vec<_> = flags.into_iter().copied().collect();
        let mut child = program(file, &flags).spawn();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let (mut line, mut url, mut all) = (String::new(), String::new(), String::new());
        while !line.starts_with("Try:") {
            line.clear();
            assert!(log.read_line(&mut line).unwrap() > 0, "the server ended: {all}");
            all.push_str(&line);
            if let Some((_, address)) = line.split_once(" on http://") {
                url = format!("http://{}", address.trim());
            }
        }
        let read_on = move || {
            // Part of a log is better than none.
            let _ = log.read_to_string(&mut all);
            all
        };
        Self { child, url, log: Some(std::thread::spawn(read_on)) }
    }

    /// Kills the process as `kill -9` does, though others may write its log.
    #[cfg(target_os = "linux")]
    pub(crate) fn kill_alone(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asks the process to end, and waits until it has ended.
    pub(crate) fn terminate(mut self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        self.child.wait().unwrap();
    }

    /// Kills the process, as `kill -9` does. Returns its log.
    pub(crate) fn kill(mut self) -> String {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.log.take().unwrap().join().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A failed test must not leave a server behind. After `kill` there is none.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
