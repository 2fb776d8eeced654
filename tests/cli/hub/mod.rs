//! Models by name, from a hub of our own.

mod python;
mod server;

use std::{
    collections::BTreeMap,
    fs,
    io::Read,
    path::{Path, PathBuf},
    thread::park_timeout,
    time::{Duration, Instant},
};

use safetensors::SafeTensors;
use serde_json::{Value, json};
use tempfile::TempDir;

use self::server::Hub;
use crate::{
    process::{Run, playhouse},
    server::Server,
};

const GENERATE: &[&str] = &[
    "generate",
    "--max-model-len",
    "256",
    "--max-tokens",
    "12",
    "--temperature",
    "0",
    "--ignore-eos",
    "Once upon a time",
];
const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Returns the demo model as a repository has it, with files that no one needs.
fn demo() -> BTreeMap<String, Vec<u8>> {
    let needed = [
        "chat_template.jinja",
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ];
    let read = |name: &str| {
        let content = fs::read(root("examples/demo-model").join(name)).unwrap();
        (name.to_owned(), content)
    };
    let mut files: BTreeMap<_, _> = needed.map(read).into_iter().collect();
    for other in ["README.md", "pytorch_model.bin", "original/consolidated.pth", "onnx/model.onnx"]
    {
        files.insert(other.to_owned(), b"not needed".to_vec());
    }
    files
}

/// Returns the same with the weights in two files and an index.
fn sharded() -> BTreeMap<String, Vec<u8>> {
    let mut files = demo();
    let weights = files.remove("model.safetensors").unwrap();
    let tensors = SafeTensors::deserialize(&weights).unwrap();
    let mut shards = [Vec::new(), Vec::new()];
    let mut map = BTreeMap::new();
    for (position, (name, tensor)) in tensors.tensors().into_iter().enumerate() {
        let shard = position % 2;
        map.insert(name.clone(), format!("model-0000{}-of-00002.safetensors", shard + 1));
        shards[shard].push((name, tensor));
    }
    for (number, shard) in (1..).zip(shards) {
        let bytes = safetensors::serialize(shard, None).unwrap();
        files.insert(format!("model-0000{number}-of-00002.safetensors"), bytes);
    }
    let index = json!({ "metadata": {}, "weight_map": map }).to_string();
    files.insert("model.safetensors.index.json".to_owned(), index.into_bytes());
    files
}

/// A user with an own home and a hub.
struct User {
    home: TempDir,
    hub: Hub,
}

impl User {
    /// Returns a user of a hub that has the demo model as `org/demo`.
    fn new() -> Self {
        let hub = Hub::start();
        hub.add("org/demo", COMMIT, demo());
        Self { home: TempDir::new().unwrap(), hub }
    }

    fn run(&self, arguments: &[&str]) -> Run {
        self.variables(playhouse(arguments))
    }

    fn variables(&self, run: Run) -> Run {
        let home = self.home.path().to_str().unwrap();
        run.env("HF_ENDPOINT", &self.hub.endpoint)
            .env("HF_HOME", home)
            .env("HF_HUB_CACHE", "")
            .env("HF_TOKEN", "")
            .env("HF_HUB_OFFLINE", "")
            .env("NO_PROXY", "127.0.0.1,localhost")
    }

    fn generate(&self, model: &str) -> Run {
        self.run(&[GENERATE, &["-m", model]].concat())
    }

    /// Returns the folder of the model's repository in the cache.
    fn folder(&self) -> PathBuf {
        self.home.path().join("hub/models--org--demo")
    }

    /// Returns the names of the blobs, and how many of them are partial.
    fn blobs(&self) -> (usize, usize) {
        let names = fs::read_dir(self.folder().join("blobs")).unwrap();
        let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
        let ends_in =
            |end: &str| names.iter().filter(|name| name.to_string_lossy().ends_with(end)).count();
        (names.len() - ends_in(".part") - ends_in(".lock"), ends_in(".part"))
    }
}

fn expected() -> String {
    playhouse(GENERATE).succeeds()
}

#[test]
fn a_model_by_name_is_fetched_once_and_answers_without_the_hub() {
    let user = User::new();
    let (code, answer, log) = user.generate("org/demo").finish();
    assert_eq!((code, answer), (Some(0), expected()), "{log}");
    assert!(log.contains("fetching model.safetensors of org/demo (10.4 MB)"), "{log}");
    let snapshot = user.folder().join("snapshots").join(COMMIT);
    let names = fs::read_dir(&snapshot).unwrap().count();
    assert_eq!(names, 6, "only the files that a model needs");
    assert_eq!(fs::read_to_string(user.folder().join("refs/main")).unwrap(), COMMIT);
    assert_eq!(fs::read_dir(user.folder().join("refs")).unwrap().count(), 1);

    let requests = user.hub.state().log.len();
    assert_eq!(user.generate("org/demo").succeeds(), expected());
    assert_eq!(user.hub.state().log.len(), requests, "the cache needs no hub");
    let unreachable = user.generate("org/demo").env("HF_ENDPOINT", "http://127.0.0.1:9");
    assert_eq!(unreachable.succeeds(), expected());
    let offline = user.run(&[GENERATE, &["-m", "org/demo", "--offline"]].concat());
    assert_eq!(offline.succeeds(), expected());

    let listed = user.run(&["models", "--downloaded", "--output", "json"]).succeeds();
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed[0]["name"], "org/demo");
    assert_eq!(listed[0]["revision"], COMMIT);
    assert_eq!(listed[0]["refs"], json!(["main"]));
    assert_eq!(listed[0]["path"], json!(snapshot));
    assert!(listed[0]["bytes"].as_u64().unwrap() > 10_000_000);
    let listed = user.run(&["models", "--downloaded"]).succeeds();
    assert!(listed.starts_with("org/demo  ") && listed.contains(" main "), "{listed}");
    let (code, listed, told) = user.run(&["models", "--downloaded", "other"]).finish();
    assert_eq!((code, listed.as_str()), (Some(0), ""));
    assert!(told.contains("no such model is in the cache; `playhouse pull "), "{told}");
}

#[test]
fn shards_are_fetched_by_their_index() {
    let user = User::new();
    user.hub.add("org/demo", COMMIT, sharded());
    let folder = user.run(&["pull", "org/demo"]).succeeds();
    let folder = Path::new(folder.trim_end());
    assert_eq!(folder, user.folder().join("snapshots").join(COMMIT));
    assert!(folder.join("model-00002-of-00002.safetensors").exists());
    assert!(!folder.join("pytorch_model.bin").exists());
    assert_eq!(user.generate("org/demo").env("HF_HUB_OFFLINE", "1").succeeds(), expected());
}

/// A hub answers no range of an empty file.
#[test]
fn an_empty_file_and_the_settings_of_a_processor_are_part_of_a_model() {
    let user = User::new();
    let mut files = demo();
    files.insert("added_tokens.json".to_owned(), Vec::new());
    files.insert("preprocessor_config.json".to_owned(), b"{}".to_vec());
    user.hub.add("org/demo", COMMIT, files);
    let folder = user.run(&["pull", "org/demo"]).succeeds();
    let folder = Path::new(folder.trim_end());
    assert_eq!(fs::read(folder.join("added_tokens.json")).unwrap(), b"");
    assert_eq!(fs::read(folder.join("preprocessor_config.json")).unwrap(), b"{}");
    // The second time, it is there.
    user.run(&["pull", "org/demo"]).succeeds();
}

#[test]
fn a_gguf_file_is_fetched_by_its_name_or_the_end_of_its_name() {
    let user = User::new();
    let content = fs::read(root("tests/formats/fixtures/qwen3.gguf")).unwrap();
    let names = ["demo-Q4_K_M.gguf", "demo-Q8_0.gguf", "demo-Q2_K-00001-of-00002.gguf"];
    let files = names.map(|name| (name.to_owned(), content.clone()));
    user.hub.add("org/demo", COMMIT, BTreeMap::from(files));
    let part = |number| format!("llama-0000{number}-of-00004.gguf");
    let parts = (1..=4).map(|number| {
        let path = root("tests/formats/fixtures/parts").join(part(number));
        (format!("F16/{}", part(number)), fs::read(path).unwrap())
    });
    user.hub.add("org/parts", COMMIT, parts.collect());
    let path = root("tests/formats/fixtures/qwen3.gguf");
    let expected = user.generate(path.to_str().unwrap()).succeeds();
    for name in ["org/demo:Q4_K_M", "org/demo@main:demo-Q4_K_M.gguf"] {
        assert_eq!(user.generate(name).succeeds(), expected, "{name}");
    }
    let listed = user.run(&["models", "--downloaded"]).succeeds();
    assert!(listed.starts_with("org/demo:demo-Q4_K_M.gguf  "), "{listed}");
    let error = user.generate("org/demo").fails_with(1);
    assert!(error.contains("it has GGUF files: add one to the name"), "{error}");
    let error = user.generate("org/demo:Q2_K").fails_with(1);
    assert!(error.contains("it lacks parts of demo-Q2_K-00001-of-00002.gguf"), "{error}");
    user.run(&["pull", "org/parts:F16/llama-00003-of-00004.gguf"]).succeeds();
    let listed = user.run(&["models", "--downloaded"]).succeeds();
    assert!(listed.contains("org/parts:F16/llama-00001-of-00004.gguf  "), "{listed}");
    assert!(!listed.contains("00002-of-00004"), "{listed}");
}

#[test]
fn a_server_has_the_name_as_its_models_name() {
    let user = User::new();
    let pirate = root("examples/demo-model/pirate");
    let adapter = ["adapter_config.json", "adapter_model.safetensors"];
    let adapter = adapter.map(|name| (name.to_owned(), fs::read(pirate.join(name)).unwrap()));
    for name in ["org/pirate", "org/later"] {
        user.hub.add(name, COMMIT, BTreeMap::from(adapter.clone()));
    }
    let flags = ["org/demo", "--enable-lora", "--lora-modules", "pirate=org/pirate"];
    let flags = [&flags[..], &["--allow-runtime-lora-updating"]].concat();
    let server = Server::start_with(&flags, |run| user.variables(run));
    let body = r#"{"lora_name": "later", "lora_path": "org/later"}"#;
    let mut loaded = String::new();
    server.post("/v1/load_lora_adapter", body).read_to_string(&mut loaded).unwrap();
    assert!(loaded.starts_with("HTTP/1.1 200"), "{loaded}");
    let answer = server.get("/v1/models");
    assert!(answer.contains(r#""id":"org/demo""#), "{answer}");
    assert!(answer.contains(r#""root":"org/demo""#), "{answer}");
    assert!(answer.contains(r#""id":"pirate""#), "{answer}");
    assert!(answer.contains(r#""id":"later""#), "{answer}");
    drop(server);
    let server = Server::start_with(&["org/demo", "--single-process"], |run| user.variables(run));
    let answer = server.get("/v1/models");
    assert!(answer.contains(r#""id":"org/demo""#), "{answer}");
    assert!(answer.contains(r#""root":"org/demo""#), "{answer}");
}

#[test]
fn a_head_that_guesses_tokens_may_have_a_name() {
    let user = User::new();
    let files = ["config.json", "model.safetensors"].map(|name| {
        let content = fs::read(root("examples/demo-model/eagle").join(name)).unwrap();
        (name.to_owned(), content)
    });
    user.hub.add("org/head", COMMIT, BTreeMap::from(files));
    let speculative = r#"{"method": "eagle", "model": "org/head", "num_speculative_tokens": 2}"#;
    let flags = ["-m", "org/demo", "--speculative-config", speculative];
    assert_eq!(user.run(&[GENERATE, &flags].concat()).succeeds(), expected());
}

#[test]
fn a_tokenizer_needs_no_weights() {
    let user = User::new();
    let tokens = user.run(&["tokenize", "-m", "org/demo", "Hello"]).succeeds();
    assert_eq!(tokens, playhouse(&["tokenize", "Hello"]).succeeds());
    assert!(user.hub.large_requests().is_empty(), "no weights were fetched");
}

#[test]
fn a_cut_connection_is_continued_where_it_ended() {
    let user = User::new();
    user.hub.state().faults.cuts = 2;
    user.hub.state().faults.unavailable = 1;
    assert_eq!(user.generate("org/demo").succeeds(), expected());
    let size = fs::metadata(root("examples/demo-model/model.safetensors")).unwrap().len();
    let from = user.hub.large_requests();
    assert!(from.len() == 3 && from[0] == 0 && from.is_sorted_by(|a, b| a < b), "{from:?}");
    assert!(from[2] < usize::try_from(size).unwrap(), "{from:?}");
}

#[test]
fn a_command_continues_the_download_of_an_earlier_one() {
    let user = User::new();
    user.hub.state().faults.cuts = 100;
    let mut child = user.run(&["pull", "org/demo"]).spawn();
    let limit = Instant::now() + Duration::from_secs(120);
    while user.hub.large_requests().len() < 2 {
        assert!(Instant::now() < limit, "the download is not continued");
        park_timeout(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(user.blobs().1, 1, "a part is kept");
    user.hub.state().faults.cuts = 0;
    let before = user.hub.large_requests().len();
    user.run(&["pull", "org/demo"]).succeeds();
    let from = user.hub.large_requests()[before..].to_vec();
    assert!(from.len() == 1 && from[0] > 0, "{from:?}");
    assert_eq!(user.generate("org/demo").succeeds(), expected());
}

#[test]
fn a_part_that_is_too_long_is_fetched_anew() {
    let user = User::new();
    user.run(&["pull", "org/demo"]).succeeds();
    let weights = user.folder().join("snapshots").join(COMMIT).join("model.safetensors");
    let blob = weights.canonicalize().unwrap();
    // A process was killed between the last byte and the renaming.
    fs::rename(&blob, blob.with_extension("part")).unwrap();
    fs::remove_file(&weights).unwrap();
    user.run(&["pull", "org/demo"]).succeeds();
    assert_eq!(user.generate("org/demo").succeeds(), expected());
}

#[test]
fn a_wrong_file_is_refused_and_removed() {
    let user = User::new();
    user.hub.state().faults.corrupts = true;
    let error = user.generate("org/demo").fails_with(1);
    assert!(error.contains("model.safetensors of org/demo was fetched wrongly"), "{error}");
    assert!(error.contains("its SHA-256 is ") && error.contains("was removed"), "{error}");
    let snapshot = user.folder().join("snapshots").join(COMMIT);
    assert!(snapshot.join("model.safetensors").symlink_metadata().is_err());
    user.hub.state().faults.corrupts = false;
    assert_eq!(user.generate("org/demo").succeeds(), expected());

    // `pull` finds what has changed on the disk since.
    let blob = snapshot.join("model.safetensors").canonicalize().unwrap();
    let mut content = fs::read(&blob).unwrap();
    content[9_000_000] ^= 1;
    fs::write(&blob, content).unwrap();
    let (code, _, log) = user.run(&["pull", "org/demo"]).finish();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("is not the hub's file: fetching it anew"), "{log}");
    assert_eq!(user.generate("org/demo").succeeds(), expected());
}

#[test]
fn a_new_commit_reuses_the_weights_that_did_not_change() {
    let user = User::new();
    user.run(&["pull", "org/demo"]).succeeds();
    let mut files = demo();
    files.insert("generation_config.json".to_owned(), b"{\"temperature\": 0.5}".to_vec());
    let commit = COMMIT.replace('0', "f");
    user.hub.add("org/demo", &commit, files);
    let before = user.hub.large_requests().len();
    let folder = user.run(&["pull", "org/demo"]).succeeds();
    assert!(folder.trim_end().ends_with(&commit), "{folder}");
    assert_eq!(user.hub.large_requests().len(), before);
    assert_eq!(user.generate("org/demo").succeeds(), expected());
    let old = format!("org/demo@{COMMIT}");
    assert_eq!(user.generate(&old).env("HF_HUB_OFFLINE", "1").succeeds(), expected());
}

#[test]
fn a_gated_model_says_how_to_get_it() {
    let user = User::new();
    user.hub.state().repositories.get_mut("org/demo").unwrap().token = Some("hf_right".to_owned());
    let error = user.generate("org/demo").fails_with(1);
    let endpoint = &user.hub.endpoint;
    assert!(error.contains(&format!("accept the model's terms at {endpoint}/org/demo")), "{error}");
    assert!(error.contains("set HF_TOKEN to a token"), "{error}");
    let error = user.generate("org/demo").env("HF_TOKEN", "hf_wrong").fails_with(1);
    assert!(error.contains("the token in use has no access"), "{error}");
    assert!(!error.contains("hf_wrong"), "{error}");
    assert_eq!(user.generate("org/demo").env("HF_TOKEN", "hf_right").succeeds(), expected());
    let other = TempDir::new().unwrap();
    let folder = other.path().to_str().unwrap();
    let pull = ["pull", "org/demo", "--hf-token", "hf_right", "--download-dir", folder];
    let pulled = user.run(&pull).succeeds();
    assert!(pulled.starts_with(folder), "{pulled}");
    let shown = user.run(&["config", "--hf-token", "hf_right"]).succeeds();
    assert!(shown.contains("# hf_token = \"***\"") && !shown.contains("hf_right"), "{shown}");
}

#[test]
fn errors_say_what_to_do() {
    let user = User::new();
    let offline = user.run(&[GENERATE, &["-m", "org/demo", "--offline"]].concat()).fails_with(1);
    let begin = "error: the engine did not start: the model org/demo is no folder or file here, \
                 and not in the cache ";
    assert!(offline.starts_with(begin), "{offline}");
    assert!(offline.contains("run `playhouse pull org/demo` with a network"), "{offline}");
    assert_eq!(offline.lines().count(), 1, "{offline}");

    let error = user.run(&["pull", "org/none"]).fails_with(1);
    assert!(error.contains("(401): it is gated, private or misspelt"), "{error}");
    let error = user.run(&["pull", "org/none"]).env("HF_TOKEN", "hf_1").fails_with(1);
    assert!(error.contains("has no such model or revision; check the spelling"), "{error}");
    let error = user.run(&["pull", "org/demo@v9"]).env("HF_TOKEN", "hf_1").fails_with(1);
    assert!(error.contains("the model org/demo@v9"), "{error}");
    let down = user.run(&["pull", "org/demo"]).env("HF_ENDPOINT", "http://127.0.0.1:9");
    let error = down.fails_with(1);
    assert!(error.contains("http://127.0.0.1:9 cannot be reached to fetch it"), "{error}");
    assert!(error.contains("copy the model's files to a folder here"), "{error}");
    let error = user.run(&["pull", "org/demo"]).env("HF_ENDPOINT", "mirror").fails_with(1);
    assert!(error.contains("HF_ENDPOINT = mirror: expected a URL"), "{error}");
    let error = user.run(&["pull", "examples/demo-model/x"]).fails_with(2);
    assert!(error.contains("is no name; expected org/name"), "{error}");
    let error = user.run(&["pull", "org/demo", "--download-dir", "/dev/null/x"]).fails_with(1);
    assert!(error.contains("the cache /dev/null/x cannot be used"), "{error}");

    // Nothing is fetched before the flags are known to be right.
    let requests = user.hub.state().log.len();
    let wrong = user.run(&["serve", "org/demo", "--max-num-seqs", "0"]).fails_with(2);
    assert!(wrong.contains("max_num_seqs"), "{wrong}");
    assert_eq!(user.hub.state().log.len(), requests);
}

#[test]
fn a_disk_that_is_too_small_is_found_before_the_download() {
    let user = User::new();
    user.hub.state().faults.claimed_size = Some(1 << 60);
    let error = user.run(&["pull", "org/demo"]).fails_with(1);
    assert!(error.contains("there is no space for org/demo: 1152921.5 TB are needed"), "{error}");
    assert!(error.contains(" are free; free some, or name another folder"), "{error}");
    assert!(user.hub.large_requests().is_empty());
}

#[test]
fn a_repository_without_usable_weights_says_what_it_has() {
    let user = User::new();
    let mut files = demo();
    files.remove("model.safetensors");
    user.hub.add("org/demo", COMMIT, files);
    let error = user.generate("org/demo").fails_with(1);
    let expected = "it has no model.safetensors and no model.safetensors.index.json (only \
                    onnx/model.onnx, original/consolidated.pth, pytorch_model.bin)";
    assert!(error.contains(expected), "{error}");
}
