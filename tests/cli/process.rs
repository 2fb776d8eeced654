//! Runs of the program.

use std::{
    ffi::OsStr,
    fs::File,
    io::Write,
    process::{Child, Command, Stdio},
};

/// Returns a device that rejects every write, like a full disk, if the system has one.
pub(crate) fn full_device() -> Option<File> {
    File::options().write(true).open("/dev/full").ok()
}

/// A run of the program that has not started yet.
pub(crate) struct Run {
    command: Command,
    input: Option<String>,
}

/// Returns a run with these arguments, in an environment without settings. With
/// `PLAYHOUSE_TEST_SINGLE_PROCESS`, a server has its model in its own process.
pub(crate) fn playhouse(arguments: &[&str]) -> Run {
    program(env!("CARGO_BIN_EXE_playhouse"), arguments)
}

/// Returns the same, of the program in another file.
pub(crate) fn program(file: impl AsRef<OsStr>, arguments: &[&str]) -> Run {
    let mut command = Command::new(file);
    let settings = std::env::vars_os().map(|(name, _)| name);
    for name in settings.filter(|name| name.to_string_lossy().starts_with("PLAYHOUSE_")) {
        command.env_remove(name);
    }
    command.args(arguments);
    let flag = "--single-process";
    let is_server = arguments.first() == Some(&"serve") && !arguments.contains(&flag);
    if is_server && std::env::var_os("PLAYHOUSE_TEST_SINGLE_PROCESS").is_some() {
        command.arg(flag);
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Run { command, input: None }
}

impl Run {
    /// Sets an environment variable.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// Pipes `text` into standard input.
    pub(crate) fn input(mut self, text: &str) -> Self {
        self.command.stdin(Stdio::piped());
        self.input = Some(text.to_owned());
        self
    }

    /// Reads standard input from `source`.
    #[allow(dead_code, reason = "the tests of sockets use it")]
    pub(crate) fn stdin(mut self, source: impl Into<Stdio>) -> Self {
        self.command.stdin(source);
        self
    }

    /// Sends standard output to `file`.
    pub(crate) fn stdout(mut self, file: File) -> Self {
        self.command.stdout(file);
        self
    }

    /// Sends standard error to `file`.
    pub(crate) fn stderr(mut self, file: File) -> Self {
        self.command.stderr(file);
        self
    }

    /// Starts the program.
    pub(crate) fn spawn(mut self) -> Child {
        let mut child = self.command.spawn().unwrap();
        if let Some(text) = &self.input {
            child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        }
        child
    }

    /// Waits for the end. Returns the exit code, standard output and standard error.
    pub(crate) fn finish(self) -> (Option<i32>, String, String) {
        let output = self.spawn().wait_with_output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    }

    /// Returns standard output. Panics if the program fails.
    pub(crate) fn succeeds(self) -> String {
        let (code, stdout, stderr) = self.finish();
        assert_eq!(code, Some(0), "{stderr}");
        stdout
    }

    /// Returns standard error. Panics if the exit code is not `code`, or if standard output is not
    /// empty.
    pub(crate) fn fails_with(self, code: i32) -> String {
        let (actual, stdout, stderr) = self.finish();
        assert_eq!(actual, Some(code), "{stdout}{stderr}");
        assert_eq!(stdout, "");
        stderr
    }
}
