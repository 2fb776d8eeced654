//! The cache as Hugging Face's own Python package reads and fills it. `PLAYHOUSE_TEST_PYTHON` names
//! a Python that has `huggingface_hub`. Without one, the test prints a note and passes.
#![allow(clippy::print_stdout, reason = "part of a test")]

use std::process::Command;

use serde_json::{Value, json};

use super::{COMMIT, User, expected};

/// Prints the folder of a model and the content of the cache.
const SCRIPT: &str = "
import json, sys
try:
    from huggingface_hub import scan_cache_dir, snapshot_download
except ImportError:
    sys.exit(3)
is_local = sys.argv[1] == 'local'
patterns = ['*.json', '*.jinja', '*.safetensors']
folder = snapshot_download('org/demo', local_files_only=is_local, allow_patterns=patterns)
cache = scan_cache_dir()
revisions = [[r.commit_hash, sorted(r.refs), len(r.files)] for m in cache.repos for r in m.revisions]
print(json.dumps([folder, revisions, [str(warning) for warning in cache.warnings]]))
";

/// Returns the script's output. `None` if there is no Python with the package.
fn python(user: &User, argument: &str) -> Option<Value> {
    let python = std::env::var("PLAYHOUSE_TEST_PYTHON").unwrap_or("python3".to_owned());
    let output = Command::new(&python)
        .args(["-c", SCRIPT, argument])
        .env("HF_ENDPOINT", &user.hub.endpoint)
        .env("HF_HOME", user.home.path())
        .env("NO_PROXY", "127.0.0.1,localhost")
        .env("HF_HUB_DISABLE_TELEMETRY", "1")
        .output();
    let Ok(output) = output else {
        println!("skipped: {python} does not run");
        return None;
    };
    if output.status.code() == Some(3) {
        println!("skipped: {python} has no huggingface_hub");
        return None;
    }
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

#[test]
fn python_programs_share_the_cache() {
    let user = User::new();
    user.run(&["pull", "org/demo"]).succeeds();
    let Some(seen) = python(&user, "local") else { return };
    let snapshot = user.folder().join("snapshots").join(COMMIT);
    assert_eq!(seen, json!([snapshot, [[COMMIT, ["main"], 6]], []]));

    let user = User::new();
    python(&user, "fetch").unwrap();
    let requests = user.hub.state().log.len();
    assert_eq!(user.generate("org/demo").succeeds(), expected());
    assert_eq!(user.hub.state().log.len(), requests, "Python has fetched all files");
    user.run(&["pull", "org/demo"]).succeeds();
}
