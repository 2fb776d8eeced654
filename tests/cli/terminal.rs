//! A terminal that a test types into. `script`, of util-linux, makes it.
#![allow(clippy::print_stderr, reason = "a test that skips says so")]
#![allow(clippy::panic, reason = "a test that cannot go on has failed")]

use std::{
    io::{Read, Write},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, sync_channel},
    time::Duration,
};

/// Longest wait. A test that waits longer has failed.
const PATIENCE: Duration = Duration::from_secs(120);

/// A command in a terminal.
pub(crate) struct Terminal {
    child: Child,
    keyboard: Option<ChildStdin>,
    news: Receiver<Vec<u8>>,
    /// Output that was shown and is not read yet.
    screen: String,
}

/// Returns whether this machine can make terminals.
pub(crate) fn can_make_terminals() -> bool {
    let can = Command::new("script").arg("--version").output();
    let can =
        can.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("util-linux"));
    if !can {
        eprintln!("skipped: there is no script of util-linux");
    }
    can
}

impl Terminal {
    /// Starts the program with `arguments`, quoted for a shell, and `variables`.
    pub(crate) fn new(arguments: &str, variables: &[(&str, &str)]) -> Self {
        // Without `exec`, a shell waits for the program and dies of the Ctrl-C that the program
        // handles. dash does so, and the test would see its exit code.
        let command = format!("exec {} {arguments}", env!("CARGO_BIN_EXE_playhouse"));
        let mut script = Command::new("script");
        let settings = std::env::vars_os().map(|(name, _)| name);
        for name in settings.filter(|name| name.to_string_lossy().starts_with("PLAYHOUSE_")) {
            script.env_remove(name);
        }
        script.env_remove("NO_COLOR").env("TERM", "xterm").envs(variables.iter().copied());
        script.args(["-qfec", &command, "/dev/null"]);
        script.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = script.spawn().unwrap();
        let (sender, news) = sync_channel(1024);
        let mut output = child.stdout.take().unwrap();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut buffer) {
                if sender.send(buffer[..count].to_vec()).is_err() {
                    return;
                }
            }
        });
        let keyboard = child.stdin.take();
        Self { child, keyboard, news, screen: String::new() }
    }

    /// Types `keys`.
    pub(crate) fn types(&mut self, keys: &str) {
        let keyboard = self.keyboard.as_mut().unwrap();
        keyboard.write_all(keys.as_bytes()).and_then(|()| keyboard.flush()).unwrap();
    }

    /// Waits until `text` is shown. Returns all that was shown up to then.
    pub(crate) fn shows(&mut self, text: &str) -> String {
        loop {
            if let Some(at) = self.screen.find(text) {
                let rest = self.screen.split_off(at + text.len());
                return std::mem::replace(&mut self.screen, rest);
            }
            match self.news.recv_timeout(PATIENCE) {
                Ok(bytes) => self.screen.push_str(&String::from_utf8_lossy(&bytes)),
                Err(_) => panic!("no {text:?} on the terminal: {:?}", self.screen),
            }
        }
    }

    /// Waits for the end. Returns the exit code and the last output.
    pub(crate) fn ends(mut self) -> (Option<i32>, String) {
        // `script` may notice the end of its program only when its own input ends.
        for patience in [Duration::from_secs(2), PATIENCE] {
            while let Ok(bytes) = self.news.recv_timeout(patience) {
                self.screen.push_str(&String::from_utf8_lossy(&bytes));
            }
            drop(self.keyboard.take());
        }
        (self.child.wait().unwrap().code(), std::mem::take(&mut self.screen))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Ends the program if the test failed. One that has ended already is not affected.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
