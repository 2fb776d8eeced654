//! Tokens of drawn texts in several scripts, as transformers finds them. `testdata/make.py` made
//! the models and recorded the tokens.

use std::path::Path;

use playhouse_actors::ports::TextCodec;
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use crate::text::HfTextCodec;

fn testdata(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/text/class_tokenizer/testdata");
    std::fs::read(folder.join(name)).unwrap()
}

fn goldens() -> Vec<Value> {
    serde_json::from_slice(&testdata("goldens.json")).unwrap()
}

/// Returns a folder with the files of a recorded tokenizer, without those in `absent`.
fn folder(recorded: &Value, change: Value, absent: &[&str]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, content: Vec<u8>| {
        if !absent.contains(&name) {
            std::fs::write(folder.path().join(name), content).unwrap();
        }
    };
    for (name, content) in recorded["files"].as_object().unwrap() {
        let is_model = name.ends_with(".model") || name.ends_with(".spm");
        write(
            name,
            match content {
                Value::String(file) if is_model => testdata(file),
                Value::String(text) => text.clone().into_bytes(),
                other => other.to_string().into_bytes(),
            },
        );
    }
    let mut config = recorded["config"].clone();
    if let (Some(config), Value::Object(change)) = (config.as_object_mut(), change) {
        config.extend(change);
    }
    write("tokenizer_config.json", config.to_string().into_bytes());
    let model = json!({ "model_type": recorded["model_type"] });
    write("config.json", model.to_string().into_bytes());
    folder
}

fn recorded(name: &str) -> Value {
    goldens().into_iter().find(|recorded| recorded["name"] == name).unwrap()
}

fn refused(name: &str, change: Value, absent: &[&str]) -> String {
    let folder = folder(&recorded(name), change, absent);
    HfTextCodec::load(folder.path()).err().unwrap().to_string()
}

#[test]
fn texts_have_the_tokens_of_transformers() {
    for recorded in goldens() {
        let folder = folder(&recorded, json!({}), &[]);
        let codec = HfTextCodec::load(folder.path()).unwrap();
        assert!(HfTextCodec::is_in(folder.path()));
        for row in recorded["texts"].as_array().unwrap() {
            let text = row[0].as_str().unwrap();
            let expected: Vec<u32> = serde_json::from_value(row[1].clone()).unwrap();
            let found = codec.encode(text, true).unwrap();
            assert_eq!(found, expected, "{}: {text:?}", recorded["name"]);
        }
    }
}

#[test]
fn tokens_become_texts() {
    for recorded in goldens() {
        let codec = HfTextCodec::load(folder(&recorded, json!({}), &[]).path()).unwrap();
        for text in ["a", "abc def", "\u{430}\u{431} \u{3b1}\u{3b2}"] {
            let tokens = codec.encode(text, true).unwrap();
            let decoded = codec.decode(&tokens, true).unwrap();
            let name = &recorded["name"];
            // Pieces that `vocab.json` lacks are unknown.
            if !tokens.contains(&codec.encode("<unk>", false).unwrap()[0]) {
                assert_eq!(decoded.trim_start(), text, "{name}");
            }
            let mut decoder = codec.decoder(&[], Default::default());
            let streamed: String = tokens.iter().map(|it| decoder.push(*it).unwrap()).collect();
            assert_eq!(streamed + &decoder.flush(), decoded, "{name}");
        }
    }
}

#[test]
fn pairs_chunks_and_first_tokens_have_the_same_tokens() {
    let codec = HfTextCodec::load(folder(&recorded("t5"), json!({}), &[]).path()).unwrap();
    let (first, second) = ("ab cd.", "\u{430}\u{431} \u{3b1}");
    let alone = |text| codec.encode(text, false).unwrap();
    let pair = codec.encode_pair(first, second, true, None).unwrap();
    assert_eq!(pair.tokens, [alone(first), vec![1], alone(second), vec![1]].concat());
    let texts = [first.to_owned(), format!(" {second}")];
    let chunks = codec.encode_chunks(&texts, true).unwrap();
    assert_eq!(chunks.tokens, codec.encode(&texts.concat(), true).unwrap());
    assert_eq!(chunks.ends, [alone(first).len(), chunks.tokens.len()]);
    let begin = codec.first_tokens("ab cd ef", 2).unwrap();
    assert!("ab cd ef".starts_with(&begin) && alone(&begin) == alone("ab cd ef")[..2], "{begin}");
}

/// The types are those of transformers: the second text of BERT has the type 1.
#[test]
fn pairs_of_encoders_have_their_types() {
    let pair = |name: &str| {
        let codec = HfTextCodec::load(folder(&recorded(name), json!({}), &[]).path()).unwrap();
        let pair = codec.encode_pair("abc", "def", true, None).unwrap();
        let [first, second] = ["abc", "def"].map(|text| codec.encode(text, false).unwrap().len());
        (pair.tokens.len() - first - second, pair.second_text_at.map(|at| at - first))
    };
    assert_eq!(["bert", "bert-cased", "electra"].map(pair), [(3, Some(2)); 3]);
    assert_eq!(["mpnet", "roberta", "xlm-roberta"].map(pair), [(4, None); 3]);
}

/// BERT's file is read for no other class, whose name may be in `config.json`.
#[test]
fn a_class_in_the_models_config_is_read() {
    let read = |class: Value| {
        let folder = folder(&recorded("bert"), json!({}), &["tokenizer_config.json"]);
        let model = json!({ "model_type": "bert", "tokenizer_class": class });
        std::fs::write(folder.path().join("config.json"), model.to_string()).unwrap();
        HfTextCodec::load(folder.path()).map(|codec| codec.encode("a", true).unwrap().len())
    };
    assert_eq!(read(Value::Null).unwrap(), 3);
    assert_eq!(read(json!("BertTokenizer")).unwrap(), 3);
    let other = read(json!("BertJapaneseTokenizer")).unwrap_err().to_string();
    assert!(other.contains("tokenizer.json"), "{other}");
}

/// The type of the model tells the class where the config does not.
#[test]
fn mt5_has_the_tokenizer_of_t5() {
    let tokens = |recorded: &Value, change: Value| {
        let codec = HfTextCodec::load(folder(recorded, change, &[]).path()).unwrap();
        codec.encode("ab cd<extra_id_3>", true).unwrap()
    };
    let (t5, none) = (recorded("t5"), json!({ "tokenizer_class": null }));
    let mut mt5 = t5.clone();
    mt5["model_type"] = json!("mt5");
    assert_eq!(tokens(&mt5, none), tokens(&t5, json!({})));
    let class = json!({ "tokenizer_class": "MT5Tokenizer" });
    assert_eq!(tokens(&mt5, class), tokens(&t5, json!({})));
}

/// The expected tokens are those of transformers 5.24.
#[test]
fn a_llama_has_only_the_ends_that_its_config_adds() {
    for (change, expected) in [
        (json!({ "add_bos_token": null }), &[515][..]),
        (json!({ "add_bos_token": null, "add_eos_token": true }), &[515, 2]),
        (json!({ "add_bos_token": true }), &[1, 515]),
    ] {
        let codec = HfTextCodec::load(folder(&recorded("llama"), change, &[]).path()).unwrap();
        assert_eq!(codec.encode("a", true).unwrap(), expected);
    }
}

/// The expected tokens are those of transformers 5.24.
#[test]
fn roberta_has_the_tokenizer_of_bart() {
    let mut roberta = recorded("bart");
    roberta["model_type"] = json!("roberta");
    let load = |change: Value| HfTextCodec::load(folder(&roberta, change, &[]).path()).unwrap();
    let codec = load(json!({}));
    for (text, expected) in [
        ("A b", &[0, 37, 225, 70, 2][..]),
        ("</s>a", &[0, 2, 69, 2]),
        ("a <mask>b", &[0, 69, 225, 4, 70, 2]),
    ] {
        assert_eq!(codec.encode(text, true).unwrap(), expected, "{text:?}");
    }
    let pair = codec.encode_pair("a", "b", true, None).unwrap();
    assert_eq!(pair.tokens, [0, 69, 2, 2, 70, 2]);
    let class = json!({ "tokenizer_class": "RobertaTokenizerFast", "add_prefix_space": true });
    assert_eq!(load(class).encode("a", true).unwrap(), [0, 225, 69, 2]);
    let mask = json!({ "mask_token": { "content": "<mask>", "lstrip": true } });
    assert_eq!(load(mask).encode("a <mask>b", true).unwrap(), [0, 69, 4, 70, 2]);
}

/// Those of the first Llamas have empty names in the config.
#[test]
fn an_empty_token_is_none() {
    let change = json!({ "bos_token": "", "eos_token": "", "unk_token": "" });
    let codec = HfTextCodec::load(folder(&recorded("llama"), change, &[]).path()).unwrap();
    assert_eq!((codec.vocab_size(), codec.eos_token()), (600, None));
    assert_eq!(codec.encode("a", true).unwrap(), codec.encode("a", false).unwrap());
}

#[test]
fn a_missing_file_is_named() {
    let error = refused("marian", json!({}), &["vocab.json"]);
    let expected = "no tokenizer.json, and a MarianTokenizer without it needs source.spm and \
                    vocab.json: vocab.json is missing";
    assert!(error.ends_with(expected), "{error}");
    let error = refused("nllb", json!({}), &["sentencepiece.bpe.model"]);
    assert!(error.ends_with("sentencepiece.bpe.model is missing"), "{error}");
    let error = refused("bart", json!({}), &["vocab.json", "merges.txt"]);
    assert!(error.ends_with("vocab.json and merges.txt is missing"), "{error}");
    let error = refused("electra", json!({}), &["vocab.txt"]);
    assert!(error.ends_with("vocab.txt is missing"), "{error}");
    // No class of the list.
    let error = refused("bart", json!({"tokenizer_class": "OtherTokenizer"}), &[]);
    assert!(error.contains("tokenizer.json"), "{error}");
}

#[test]
fn fields_that_are_not_supported_are_refused() {
    for (name, change, field) in [
        ("marian", json!({"separate_vocabs": true}), "separate_vocabs"),
        ("m2m100", json!({"language_codes": "other"}), "language_codes"),
        ("mbart50", json!({"src_lang": "english"}), "src_lang"),
        ("m2m100", json!({"src_lang": 5}), "src_lang"),
        ("t5", json!({"extra_ids": -1}), "extra_ids"),
        ("t5", json!({"sp_model_kwargs": {"enable_sampling": true}}), "enable_sampling"),
        ("nllb", json!({"legacy_behaviour": "yes"}), "legacy_behaviour"),
    ] {
        let error = refused(name, change, &[]);
        assert!(error.contains(field) && error.contains("expected"), "{error}");
    }
}

#[test]
fn broken_files_are_refused() {
    for (file, content, expected) in [
        ("vocab.json", &b"{\"a\": -1}"[..], "a token id"),
        ("vocab.json", b"{}", "lacks the special token"),
        ("source.spm", b"no model", "sentencepiece model"),
        ("source.spm", b"", "no pieces"),
    ] {
        let folder = folder(&recorded("marian"), json!({}), &[]);
        std::fs::write(folder.path().join(file), content).unwrap();
        let error = HfTextCodec::load(folder.path()).err().unwrap().to_string();
        assert!(error.contains(file) && error.contains(expected), "{error}");
    }
    let mut bart = recorded("bart");
    bart["files"]["merges.txt"] = "#version: 0.2\na b c\n".into();
    let error = HfTextCodec::load(folder(&bart, json!({}), &[]).path()).err().unwrap();
    assert!(error.to_string().contains("line 2 is not two tokens"), "{error}");
}

#[test]
fn the_file_of_tokenizers_comes_first() {
    let folder = folder(&recorded("bart"), json!({}), &[]);
    let file = json!({
        "version": "1.0", "added_tokens": [],
        "model": {"type": "WordLevel", "vocab": Map::new(), "unk_token": "x"},
    });
    std::fs::write(folder.path().join("tokenizer.json"), file.to_string()).unwrap();
    assert_eq!(HfTextCodec::load(folder.path()).unwrap().vocab_size(), 0);
}
