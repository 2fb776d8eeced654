//! `playhouse config`, and how invalid settings are rejected.

use std::io::Write;

use tempfile::NamedTempFile;

use crate::process::{full_device, playhouse};

fn file(text: &str) -> NamedTempFile {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

#[test]
fn each_value_tells_where_it_comes_from() {
    let file = file("[engine]\nmax_num_seqs = 8\nseed = 5\nblock_size = 32\n");
    let path = file.path().to_str().unwrap();
    let json = playhouse(&["config", "--output", "json", "--max-num-seqs", "32"])
        .env("PLAYHOUSE_CONFIG", path)
        .env("PLAYHOUSE_SEED", "6")
        .env("PLAYHOUSE_MAX_NUM_SEQS", "16")
        .succeeds();
    let settings: serde_json::Value = serde_json::from_str(&json).unwrap();
    let engine = |key: &str| {
        let setting = &settings["engine"][key];
        (setting["value"].clone(), setting["origin"].as_str().unwrap().to_owned())
    };
    assert_eq!(engine("max_num_seqs"), (32.into(), "flag --max-num-seqs".to_owned()));
    assert_eq!(engine("seed"), (6.into(), "environment PLAYHOUSE_SEED".to_owned()));
    assert_eq!(engine("block_size"), (32.into(), format!("{path}:4")));
    assert_eq!(engine("watermark"), (0.0.into(), "default".to_owned()));
}

#[test]
fn the_printed_settings_can_be_used_as_a_file() {
    let printed = playhouse(&["config", "--max-model-len", "1K", "--dtype", "float32"]).succeeds();
    let file = file(&printed);
    let again = playhouse(&["config", "--config", file.path().to_str().unwrap()]).succeeds();
    let values = |text: &str| {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines.map(|line| line.split(" # ").next().unwrap().trim().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(values(&printed), values(&again));
    assert!(printed.contains("max_model_len = 1024"), "{printed}");
}

#[test]
fn keys_are_not_shown() {
    for variable in ["PLAYHOUSE_API_KEY", "PLAYHOUSE_ADMIN_API_KEY"] {
        let shown = playhouse(&["config"]).env(variable, "sk-secret").succeeds();
        assert!(shown.contains("api_key") && !shown.contains("sk-secret"), "{shown}");
    }
}

#[test]
fn an_unknown_key_is_refused_with_file_line_and_suggestion() {
    let file = file("[engine]\nmax_num_seq = 8\n");
    let path = file.path().to_str().unwrap();
    let stderr = playhouse(&["serve", "--config", path]).fails_with(2);
    let expected = format!(
        "error: {path}:2: unknown key engine.max_num_seq; did you mean engine.max_num_seqs?"
    );
    assert!(stderr.starts_with(&expected), "{stderr}");
}

#[test]
fn settings_that_cannot_be_are_refused_with_their_source() {
    let cases: [(&[&str], &str); 6] = [
        (&["--dtype", "float16"], "engine.dtype = float16 (from flag --dtype): must be auto,"),
        (&["--device", "cuda"], "engine.device = \"cuda\" (from flag --device): this build has no"),
        (
            &["--max-model-len", "4K", "--no-enable-chunked-prefill"],
            "engine.max_num_batched_tokens = 2048 (from default): must be at least max_model_len",
        ),
        (&["--log-level", "=loud="], "log.level: "),
        (&["--log-level", "nonsense"], "log.level: \"nonsense\" is no level"),
        (&["--api-key", ""], "server.api_key = *** (from flag --api-key): must be keys that are"),
    ];
    for (flags, expected) in cases {
        let stderr = playhouse(&[&["config"], flags].concat()).fails_with(2);
        assert!(stderr.contains(expected), "{stderr}");
    }
    let stderr = playhouse(&["config"]).env("PLAYHOUSE_API_KEY", "").fails_with(2);
    assert!(stderr.contains("(from environment PLAYHOUSE_API_KEY): it is empty"), "{stderr}");
    let stderr = playhouse(&["config"]).env("PLAYHOUSE_PROT", "1").fails_with(2);
    assert!(stderr.contains("did you mean PLAYHOUSE_PORT?"), "{stderr}");
    let stderr = playhouse(&["config", "--config", "/nowhere.toml"]).fails_with(2);
    assert!(stderr.contains("cannot read the configuration file /nowhere.toml"), "{stderr}");
}

#[test]
fn an_error_that_cannot_be_printed_has_its_exit_code() {
    let Some(full) = full_device() else { return };
    let (code, ..) = playhouse(&["config", "--port", "99999"]).stderr(full).finish();
    assert_eq!(code, Some(2));
}
