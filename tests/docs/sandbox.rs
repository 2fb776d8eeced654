//! A folder in which a reader's commands can run. It has `playhouse` and `cargo` on the path, a
//! model at the path that the documents use, and a server if the documents expect one.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    os::unix::{fs::PermissionsExt, fs::symlink, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use tempfile::TempDir;

use crate::blocks::{Block, commands};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
/// The port in documents that give a server no other port.
const PORT: &str = "8000";

/// The commit of the model that the documents name. In the sandbox, it is the demo model.
const COMMIT: &str = "c1899de289a04d12100db370d81485cdf75e47ca";

/// Longest time for a command. One that takes longer has failed.
const PATIENCE_SECS: &str = "300";
/// Longest wait for the next bytes of an answer.
const READ_PATIENCE: Duration = Duration::from_secs(300);

/// The folder where the commands of one document run.
pub(crate) struct Sandbox {
    folder: TempDir,
    server: Option<Server>,
}

struct Server {
    child: Child,
    address: String,
    /// The port that the document's commands use.
    documented_port: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        // Dropping the server stands for closing its terminal.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The result of a script.
pub(crate) struct Outcome {
    pub(crate) code: Option<i32>,
    pub(crate) output: String,
}

impl Sandbox {
    pub(crate) fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let here = folder.path();
        for name in ["examples", "configs", "benches", "tests", "docs", "Cargo.toml", ".ci"] {
            symlink(Path::new(ROOT).join(name), here.join(name)).unwrap();
        }
        fs::create_dir_all(here.join("models")).unwrap();
        let demo = Path::new(ROOT).join("examples/demo-model");
        symlink(demo, here.join("models/qwen3")).unwrap();
        let hub = here.join(".cache/huggingface/hub/models--Qwen--Qwen3-0.6B");
        fs::create_dir_all(hub.join("refs")).unwrap();
        fs::create_dir_all(hub.join("snapshots")).unwrap();
        fs::write(hub.join("refs/main"), COMMIT).unwrap();
        symlink(Path::new(ROOT).join("examples/demo-model"), hub.join("snapshots").join(COMMIT))
            .unwrap();
        let gguf = Path::new(ROOT).join("tests/formats/fixtures/qwen3.gguf");
        symlink(gguf, here.join("models/qwen3-q4_k_m.gguf")).unwrap();
        fs::write(here.join("story.txt"), "Once upon a time there was a lantern.\n").unwrap();
        fs::write(here.join("texts.txt"), "The curtain rose.\nIt rained.\n").unwrap();
        fs::write(here.join("book.txt"), "It was late. The lantern burned.\n".repeat(40)).unwrap();
        let request = r#"{"custom_id": "1", "method": "POST", "url": "/v1/chat/completions", "body": {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}}"#;
        fs::write(here.join("requests.jsonl"), format!("{request}\n")).unwrap();
        let sandbox = Self { folder, server: None };
        fs::create_dir(sandbox.programs()).unwrap();
        symlink(env!("CARGO_BIN_EXE_playhouse"), sandbox.programs().join("playhouse")).unwrap();
        sandbox.program("cargo", include_str!("cargo.sh"));
        sandbox.program("curl", include_str!("curl.sh"));
        sandbox
    }

    fn programs(&self) -> PathBuf {
        self.folder.path().join("programs")
    }

    fn program(&self, name: &str, script: &str) {
        let path = self.programs().join(name);
        fs::write(&path, script).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn bash(&self, script: &str) -> Command {
        let mut command = Command::new("bash");
        let settings = std::env::vars_os().map(|(name, _)| name);
        let begins = ["PLAYHOUSE_", "HF_", "HUGGINGFACE_", "XDG_"];
        let is_setting = |name: &str| begins.iter().any(|begin| name.starts_with(begin));
        for name in settings.filter(|name| is_setting(&name.to_string_lossy())) {
            command.env_remove(name);
        }
        let path = std::env::var("PATH").unwrap_or_default();
        command
            .args(["-euo", "pipefail", "-c", script])
            .current_dir(&self.folder)
            .env("PATH", format!("{}:{path}", self.programs().display()))
            .env("HOME", self.folder.path())
            .env("KEY", "none")
            .env("ROOT", ROOT)
            .env("TARGET", Path::new(env!("CARGO_BIN_EXE_playhouse")).parent().unwrap())
            .stdin(Stdio::null());
        command
    }

    /// Runs the commands in `block`. A server keeps running, and later blocks talk to it.
    pub(crate) fn run(&mut self, block: &Block) -> Outcome {
        let commands = commands(&block.text);
        let serves = |command: &String| is_serve(command);
        if let Some(serve) = commands.iter().find(|command| serves(command)) {
            let others = commands.iter().filter(|c| !c.is_empty() && !serves(c)).count();
            assert!(others == 0, "a server is started in a block of its own");
            return self.serve(serve);
        }
        let mut script = block.text.clone();
        if let Some(server) = &self.server {
            let port = &server.documented_port;
            script = script.replace(&format!("127.0.0.1:{port}"), &server.address);
        }
        let typed = "exec timeout \"$PATIENCE\" bash -euo pipefail -c \"$SCRIPT\"";
        let mut bash = self.bash(typed);
        outcome(bash.env("SCRIPT", script).env("PATIENCE", PATIENCE_SECS))
    }

    /// Starts the server of `command`, but on a free port.
    fn serve(&mut self, command: &str) -> Outcome {
        self.server = None;
        let command = command.split(" #").next().unwrap_or(command);
        let (command, documented_port) = match command.split_once(" --port ") {
            Some((before, rest)) => {
                let (port, after) = rest.split_once(' ').unwrap_or((rest, ""));
                (format!("{before} {after}"), port.to_owned())
            }
            None => (command.to_owned(), PORT.to_owned()),
        };
        // A run must leave nothing on the machine that the next one finds.
        let var = format!(" {}/var/", self.folder.path().display());
        let command = command.replace(" /var/", &var);
        let mut bash = self.bash(&format!("{} --port 0", with_exec(&command)));
        let mut child = bash.stderr(Stdio::piped()).process_group(0).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let (mut output, mut address) = (String::new(), None);
        while !output.contains("\nTry:") {
            let begin = output.len();
            if log.read_line(&mut output).unwrap() == 0 {
                return Outcome { code: child.wait().unwrap().code(), output };
            }
            let line = &output[begin..];
            let there = line.split_once(" on http://").map(|(_, rest)| rest.trim().to_owned());
            address = address.or(there);
        }
        // A log that is not read would stop the server.
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        let address = address.unwrap_or_default();
        self.server = Some(Server { child, address, documented_port });
        Outcome { code: Some(0), output }
    }

    /// Checks that the flags which `block` gives to the program exist. It runs none of the
    /// commands.
    pub(crate) fn check(&self, block: &Block) -> Outcome {
        let commands = commands(&block.text).into_iter().filter_map(|line| playhouse(&line));
        let script: Vec<_> = commands.map(|command| format!("{command} >/dev/null")).collect();
        outcome(&mut self.bash(&script.join("\n")))
    }

    /// Returns the program's output. Panics if the program fails.
    pub(crate) fn playhouse(&self, arguments: &str) -> String {
        let Outcome { code, output } = outcome(&mut self.bash(&format!("playhouse {arguments}")));
        assert_eq!(code, Some(0), "playhouse {arguments}: {output}");
        output
    }

    /// Returns the address of the server, and starts one if there is none.
    fn address(&mut self) -> String {
        if self.server.is_none() {
            let started =
                self.serve("playhouse serve --enable-tokenizer-info-endpoint --allow-chaos");
            assert_eq!(started.code, Some(0), "{}", started.output);
        }
        self.server.as_ref().map(|server| server.address.clone()).unwrap_or_default()
    }

    /// Returns the server's answer to a GET.
    pub(crate) fn get(&mut self, path: &str) -> String {
        let address = self.address();
        http(&address, &format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))
    }

    /// Returns the server's answer to a POST of a JSON body.
    pub(crate) fn post(&mut self, path: &str, body: &str) -> String {
        let address = self.address();
        let length = body.len();
        let headers = "Host: x\r\nConnection: close\r\nContent-Type: application/json";
        let head = format!("POST {path} HTTP/1.1\r\n{headers}\r\nContent-Length: {length}");
        http(&address, &format!("{head}\r\n\r\n{body}"))
    }
}

/// Sends `request` and returns the body of the answer, which must not be chunked.
fn http(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    stream.set_read_timeout(Some(READ_PATIENCE)).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default()
}

fn outcome(command: &mut Command) -> Outcome {
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    Outcome { code: output.status.code(), output: String::from_utf8_lossy(&text).into_owned() }
}

/// Returns `command` with `exec`, so that no shell stands between it and the test. Variables stay
/// in front.
fn with_exec(command: &str) -> String {
    let variables = command.split_whitespace().take_while(|word| word.contains('=')).count();
    let words: Vec<_> = command.split_whitespace().collect();
    [&words[..variables], &["exec"], &words[variables..]].concat().join(" ")
}

/// Returns whether `command` starts a server that keeps running.
fn is_serve(command: &str) -> bool {
    let words = command.split_whitespace();
    // Skips variables before the command, and the words that stand for `playhouse` in the source
    // tree.
    let begin = ["cargo", "run", "--release", "--", "playhouse"];
    let mut words = words.skip_while(|word| word.contains('=') || begin.contains(word));
    words.next() == Some("serve") && !command.contains("--help")
}

/// Returns the part of a line that runs the program, with `--help` instead of its work. The program
/// reads its flags before `--help` takes effect.
fn playhouse(line: &str) -> Option<String> {
    let (_, begin) = line.split_once("playhouse ").filter(|(before, _)| {
        before.is_empty() || before.ends_with([' ', '/', '(']) && !before.contains('#')
    })?;
    if !begin.starts_with(|c: char| c.is_ascii_lowercase() || c == '-') {
        return None; // An image of that name, say.
    }
    let end = begin.find(['|', '>', '<', '&', ')', '#']).unwrap_or(begin.len());
    let (ours, passed_on) = match begin[..end].split_once(" -- ") {
        Some((ours, passed_on)) => (ours, Some(passed_on)),
        None => (&begin[..end], None),
    };
    let mut command = format!("playhouse {ours} --help");
    if let Some(flags) = passed_on {
        command = format!("{command} && playhouse serve {flags} --help");
    }
    Some(command)
}

#[test]
fn servers_are_distinguished_from_other_commands() {
    assert!(is_serve("cargo run --release -- serve"));
    assert!(is_serve("KEY=x playhouse serve models/qwen3 --port 8100"));
    assert!(!is_serve("playhouse serve --help") && !is_serve("playhouse bench serve"));
    assert!(!is_serve("cargo run --release --example embed"));
}

#[test]
fn flags_are_checked_without_their_work() {
    let expect = |line: &str| playhouse(line).unwrap();
    assert_eq!(expect("playhouse bench kernels | less"), "playhouse bench kernels  --help");
    let startup = expect("playhouse bench startup -- -m x");
    assert_eq!(startup, "playhouse bench startup --help && playhouse serve -m x --help");
    assert_eq!(expect("X=1 playhouse chat # y"), "playhouse chat  --help");
    assert_eq!(playhouse("echo # playhouse serve"), None);
    assert_eq!(playhouse("docker build -t playhouse ."), None);
    assert_eq!(expect("docker run -p 1:1 playhouse serve /m"), "playhouse serve /m --help");
    let block = |text: &str| Block {
        line: 1,
        language: "sh".to_owned(),
        text: text.to_owned(),
        needs: Some("time".to_owned()),
    };
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.check(&block("playhouse bench kernels --output json\n")).code, Some(0));
    let wrong = sandbox.check(&block("playhouse bench kernels --fast\n"));
    assert_eq!(wrong.code, Some(2), "{}", wrong.output);
}
