//! Texts against mistral-common, and files that cannot be read. `tests/formats/make_tekken.py` made
//! the file and its answers.

use playhouse_actors::ports::TextCodec;
use serde_json::Value;
use tempfile::TempDir;

use crate::text::HfTextCodec;

#[derive(serde::Deserialize)]
struct Recorded {
    text: String,
    token_ids: Vec<u32>,
}

fn fixture(name: &str) -> Vec<u8> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/formats/fixtures/tekken/");
    std::fs::read(format!("{folder}{name}")).unwrap()
}

/// Loads the file after `change`.
fn load(change: impl FnOnce(&mut Value)) -> Result<HfTextCodec, String> {
    let mut tekken: Value = serde_json::from_slice(&fixture("tekken.json")).unwrap();
    change(&mut tekken);
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("tekken.json"), tekken.to_string()).unwrap();
    HfTextCodec::load(folder.path()).map_err(|error| error.to_string())
}

#[test]
fn texts_have_the_tokens_of_mistral_common() {
    let codec = load(|_| ()).unwrap();
    let golden: Vec<Recorded> = serde_json::from_slice(&fixture("golden.json")).unwrap();
    assert!(golden.len() > 60);
    for Recorded { text, token_ids } in golden {
        assert_eq!(codec.encode(&text, true).unwrap(), token_ids, "{text:?}");
        assert_eq!(codec.decode(&token_ids, true).unwrap(), text);
    }
    assert_eq!(codec.eos_token(), Some(("</s>".to_owned(), 2)));
    assert_eq!(codec.encode("[INST]", false).unwrap(), [3]);
    assert_eq!(codec.encode("<SPECIAL_11>", false).unwrap(), [11]);
    assert!(codec.is_special(11) && !codec.is_special(12));
}

#[test]
fn a_file_without_a_list_of_special_tokens_has_those_of_its_version() {
    let old = |version: &'static str| {
        load(move |tekken| {
            tekken.as_object_mut().unwrap().remove("special_tokens");
            tekken["config"]["version"] = version.into();
        })
    };
    let codec = old("v3").unwrap();
    assert_eq!(codec.encode("<s>[INST][IMG]", false).unwrap(), [1, 3, 10]);
    let why = old("v11").err().unwrap();
    assert!(why.contains("tekken.json") && why.contains("special_tokens"), "{why}");
}

#[test]
fn faults_are_named() {
    type Fault = fn(&mut Value);
    let cases: [(&str, Fault); 5] = [
        ("default_vocab_size", |file| file["config"]["default_vocab_size"] = 5.into()),
        ("vocab", |file| file["config"]["default_vocab_size"] = 100_000.into()),
        ("vocab[3]", |file| file["vocab"][3]["token_bytes"] = "?".into()),
        ("vocab[4]", |file| file["vocab"][4]["rank"] = 7.into()),
        ("special_tokens", |file| file["special_tokens"][2]["token_str"] = "<s>".into()),
    ];
    for (field, change) in cases {
        let why = load(change).err().unwrap_or_default();
        assert!(why.contains("tekken.json") && why.contains(field), "{field}: {why}");
    }
    let why = load(|file| file["config"]["pattern"] = "(".into()).err().unwrap();
    assert!(why.contains("not a usable tokenizer"), "{why}");
    let why = load(|file| *file = Value::Null).err().unwrap();
    assert!(why.contains("not valid JSON"), "{why}");
}
