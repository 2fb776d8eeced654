//! Loading: the files of a model folder, and their faults.

use playhouse_actors::ports::{ChatPrompt, DecodeOptions, TextCodec};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;

fn tokenizer_json() -> Value {
    let byte_level = json!({
        "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true,
    });
    json!({
        "version": "1.0",
        "truncation": {
            "max_length": 2, "stride": 0, "strategy": "LongestFirst", "direction": "Right",
        },
        "padding": null,
        "added_tokens": [{
            "id": 4, "content": "<s>", "special": true, "normalized": false,
            "single_word": false, "lstrip": false, "rstrip": false,
        }],
        "normalizer": null,
        "pre_tokenizer": byte_level,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [
                {"SpecialToken": {"id": "<s>", "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}},
            ],
            "pair": [
                {"Sequence": {"id": "A", "type_id": 0}},
                {"Sequence": {"id": "B", "type_id": 1}},
            ],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [4], "tokens": ["<s>"]}},
        },
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "Ġ": 2, "<e>": 3}, "merges": []},
    })
}

/// Returns a folder with these files. Strings are written unquoted.
fn folder(files: &[(&str, Value)]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, content) in files {
        let text = content.as_str().map_or_else(|| content.to_string(), str::to_owned);
        std::fs::write(dir.path().join(name), text).unwrap();
    }
    dir
}

fn load(files: &[(&str, Value)]) -> Result<HfTextCodec, TextLoadError> {
    HfTextCodec::load(folder(files).path())
}

fn load_error(files: &[(&str, Value)]) -> String {
    load(files).err().unwrap().to_string()
}

fn with_config(config: Value) -> [(&'static str, Value); 2] {
    [("tokenizer.json", tokenizer_json()), ("tokenizer_config.json", config)]
}

#[test]
fn tokenizer_json_alone_is_enough() {
    let codec = load(&[("tokenizer.json", tokenizer_json())]).unwrap();
    assert_eq!(codec.vocab_size(), 5);
    assert_eq!(codec.encode("ab <s>a", true).unwrap(), [4, 0, 1, 2, 4, 0], "not truncated to 2");
    assert_eq!(codec.encode("ab", false).unwrap(), [0, 1]);
    assert_eq!(codec.decode(&[4, 0, 2, 1], true).unwrap(), "a b");
    assert_eq!(codec.decode(&[4, 0, 2, 1], false).unwrap(), "<s>a b");
    assert_eq!((codec.eos_token(), codec.bos_token()), (None, None));
    assert!(codec.is_special(4) && !codec.is_special(0) && !codec.is_special(99));
    assert_eq!(codec.token_piece(2).as_deref(), Some("Ġ"));
    assert_eq!((codec.token_text(2), codec.token_text(4)), (" ".to_owned(), "<s>".to_owned()));
    assert_eq!((codec.token_piece(99), codec.token_text(99)), (None, String::new()));
    let chat = ChatPrompt { messages: vec![json!({"role": "user"})], ..ChatPrompt::default() };
    assert_eq!(codec.render_chat(&chat), Err(TextError::NoChatTemplate));
}

#[test]
fn tokens_with_a_role_become_special() {
    let config = json!({
        "eos_token": {"content": "<e>", "lstrip": false}, "bos_token": "<s>", "pad_token": null,
        "unk_token": "<absent>",
    });
    let codec = load(&with_config(config)).unwrap();
    assert_eq!(codec.eos_token(), Some(("<e>".to_owned(), 3)));
    assert_eq!(codec.bos_token(), Some(("<s>".to_owned(), 4)));
    assert!(codec.is_special(3));
    assert_eq!(codec.encode("a<e>b", false).unwrap(), [0, 3, 1]);
    assert_eq!(codec.decode(&[0, 3, 1], true).unwrap(), "ab");
    let mut decoder = codec.decoder(&[], DecodeOptions::default());
    let text: String = [0, 3, 1].iter().map(|&token| decoder.push(token).unwrap()).collect();
    assert_eq!(text, "ab");
}

#[test]
fn the_config_wins_over_the_map_and_the_template_file_over_the_config() {
    let config = json!({"eos_token": "<e>", "chat_template": "config", "added_tokens_decoder": {}});
    let mut files = with_config(config).to_vec();
    files.push(("special_tokens_map.json", json!({"eos_token": "<s>", "bos_token": "<s>"})));
    let render = |codec: &HfTextCodec| {
        let messages = vec![json!({"role": "user", "content": "hi"})];
        codec.render_chat(&ChatPrompt { messages, ..ChatPrompt::default() })
    };
    let codec = load(&files).unwrap();
    assert_eq!(codec.eos_token(), Some(("<e>".to_owned(), 3)));
    assert_eq!(codec.bos_token(), Some(("<s>".to_owned(), 4)));
    assert_eq!(render(&codec).unwrap(), "config");
    assert_eq!(codec.content_format(), ContentFormat::String);

    files.push(("chat_template.jinja", json!("{{ eos_token }} {{ messages[0].content }}")));
    assert_eq!(render(&load(&files).unwrap()).unwrap(), "<e> hi");

    // That of a processor counts if there is no other, or if the folder has a processor.
    files.push(("chat_template.json", json!({"chat_template": "processor"})));
    assert_eq!(render(&load(&files).unwrap()).unwrap(), "<e> hi");
    files.push(("preprocessor_config.json", json!({})));
    assert_eq!(render(&load(&files).unwrap()).unwrap(), "processor");
    let mut files = with_config(json!({})).to_vec();
    files.push(("chat_template.json", json!({"chat_template": "processor"})));
    assert_eq!(render(&load(&files).unwrap()).unwrap(), "processor");

    let named =
        json!([{"name": "default", "template": "one"}, {"name": "tool_use", "template": "t"}]);
    let named = load(&with_config(json!({"chat_template": named}))).unwrap();
    assert_eq!(render(&named).unwrap(), "one");
}

/// The order is that of `AutoProcessor` in transformers 5.24, and with tools that of vLLM.
#[test]
fn the_template_of_a_processor_wins_except_with_tools() {
    let config = json!({"chat_template": "tokenizer", "processor_class": "LlavaProcessor"});
    let mut files = with_config(config).to_vec();
    let rendered = |files: &[(&'static str, Value)]| {
        let codec = load(files).unwrap();
        [None, Some(vec![json!({"type": "function"})])].map(|tools| {
            let messages = vec![json!({"role": "user", "content": "hi"})];
            codec.render_chat(&ChatPrompt { messages, tools, ..ChatPrompt::default() }).unwrap()
        })
    };
    assert_eq!(rendered(&files), ["tokenizer", "tokenizer"]);
    files.push(("chat_template.json", json!({"chat_template": "processor"})));
    assert_eq!(rendered(&files), ["processor", "tokenizer"]);
    files.push(("chat_template.jinja", json!("file")));
    assert_eq!(rendered(&files), ["processor", "file"]);
    files.push(("processor_config.json", json!({"chat_template": "whole"})));
    assert_eq!(rendered(&files), ["whole", "file"]);
}

/// As in transformers.
#[test]
fn the_map_wins_over_an_older_config() {
    let mut files = with_config(json!({"eos_token": "<e>", "bos_token": "a"})).to_vec();
    files.push(("special_tokens_map.json", json!({"eos_token": "<s>", "pad_token": "b"})));
    let codec = load(&files).unwrap();
    assert_eq!(codec.eos_token(), Some(("<s>".to_owned(), 4)));
    assert_eq!(codec.bos_token(), Some(("a".to_owned(), 0)));
    assert_eq!(codec.pad_token(), Some(1));
}

/// As in transformers, templates in files replace those of the config.
#[test]
fn further_templates_have_files_in_a_folder() {
    let of_config = json!([{"name": "default", "template": "c"}, {"name": "rag", "template": "c"}]);
    let dir = folder(&with_config(json!({"chat_template": of_config})));
    let render = |name: Option<&str>, tools: Option<Vec<Value>>| {
        let messages = vec![json!({"role": "user", "content": "hi"})];
        let chat_template = name.map(str::to_owned);
        let chat = ChatPrompt { messages, chat_template, tools, ..ChatPrompt::default() };
        HfTextCodec::load(dir.path()).unwrap().render_chat(&chat).unwrap()
    };
    assert_eq!(render(Some("rag"), None), "c");
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    std::fs::create_dir(dir.path().join("additional_chat_templates")).unwrap();
    assert_eq!(render(None, None), "c");
    write("chat_template.jinja", "one");
    write("additional_chat_templates/tool_use.jinja", "tools");
    write("additional_chat_templates/cite.jinja", "cite");
    write("additional_chat_templates/notes.txt", "notes");
    std::fs::create_dir(dir.path().join("additional_chat_templates/more")).unwrap();
    assert_eq!(render(None, None), "one");
    assert_eq!(render(None, Some(vec![json!({"type": "function"})])), "tools");
    assert_eq!(render(Some("cite"), None), "cite");
    // A name that is no template's is the template itself.
    assert_eq!([render(Some("rag"), None), render(Some("notes"), None)], ["rag", "notes"]);
}

#[test]
fn declared_tokens_are_added_with_their_ids() {
    let config = json!({"added_tokens_decoder": {
        "5": {"content": "<x>", "special": true}, "3": {"content": "<e>", "special": true},
    }});
    let mut files = with_config(config).to_vec();
    files.push(("added_tokens.json", json!({"<y>": 6})));
    let codec = load(&files).unwrap();
    assert_eq!(codec.encode("<x>a<y>", false).unwrap(), [5, 0, 6]);
    assert!(codec.is_special(5) && codec.is_special(3) && !codec.is_special(6));
}

/// transformers 5.24 takes the declared ids as an order, no more.
#[test]
fn a_token_keeps_its_id_and_a_new_one_gets_the_next() {
    let config = json!({"added_tokens_decoder": {
        "0": {"content": "<s>", "special": true}, "7": {"content": "<e>", "special": true},
        "9": {"content": "<y>", "special": true}, "8": {"content": "<x>", "special": true},
    }});
    let codec = load(&with_config(config)).unwrap();
    assert_eq!(codec.encode("<s><e><y><x>a", false).unwrap(), [4, 3, 6, 5, 0]);
    assert!(codec.is_special(3) && codec.is_special(4));
}

/// As in transformers, which adds the tokens of the config anew.
#[test]
fn the_flags_of_the_config_replace_those_of_the_tokenizer() {
    let with = |id: &str, token: Value| {
        load(&with_config(json!({"added_tokens_decoder": {id: token}}))).unwrap()
    };
    let plain = with("4", json!({"content": "<s>", "special": true}));
    assert_eq!(plain.encode("a<s> b", false).unwrap(), [0, 4, 2, 1]);
    let strips = with("4", json!({"content": "<s>", "special": true, "rstrip": true}));
    assert_eq!(strips.encode("a<s> b", false).unwrap(), [0, 4, 1]);
    // A token of the vocabulary, which no merges make.
    let added = with("3", json!({"content": "<e>", "special": false, "normalized": false}));
    assert_eq!(added.encode("a<e>b", false).unwrap(), [0, 3, 1]);
    assert!(!added.is_special(3));
    assert_eq!(added.decode(&[0, 3, 1], true).unwrap(), "a<e>b");
}

#[test]
fn ids_beyond_the_embedding_are_refused() {
    let codec = load(&[("tokenizer.json", tokenizer_json())]).unwrap();
    codec.check_vocab(5).unwrap();
    codec.check_vocab(512).unwrap();
    // An added token may lack a row: prompts with it are rejected.
    codec.check_vocab(4).unwrap();
    let error = codec.check_vocab(3).unwrap_err().to_string();
    assert!(error.contains("token \"<e>\" has id 3, but the model's vocab_size is 3"), "{error}");
}

#[test]
fn errors_name_the_file_and_what_is_wrong() {
    let missing = load_error(&[]);
    assert!(missing.starts_with("cannot read ") && missing.contains("tokenizer.json"), "{missing}");

    let cut = load_error(&[("tokenizer.json", json!("{\"model\": {"))]);
    assert!(cut.contains("tokenizer.json: not valid JSON: EOF"), "{cut}");

    for no_model in [json!({}), json!({"model": null}), json!([])] {
        let error = load_error(&[("tokenizer.json", no_model)]);
        assert!(error.contains("tokenizer.json: no tokenizer: the object `model`"), "{error}");
    }
    let odd = json!({"version": "1.0", "model": {"type": "Oracle"}});
    let error = load_error(&[("tokenizer.json", odd)]);
    assert!(error.contains("tokenizer.json: not a usable tokenizer: "), "{error}");

    let config = load_error(&with_config(json!("{")));
    assert!(config.contains("tokenizer_config.json: not valid JSON"), "{config}");
    let token = load_error(&with_config(json!({"eos_token": 5})));
    assert!(token.contains("tokenizer_config.json: `eos_token` is 5, expected a token"), "{token}");
    let template = load_error(&with_config(json!({"chat_template": [{"name": "x"}]})));
    assert!(
        template.contains("`chat_template` is {\"name\":\"x\"}, expected a template"),
        "{template}"
    );
}

#[cfg(unix)]
#[test]
fn bytes_that_are_no_utf8_are_an_error_not_a_panic() {
    let dir = folder(&with_config(json!({})));
    std::fs::write(dir.path().join("chat_template.jinja"), b"\xff\xfe").unwrap();
    let error = HfTextCodec::load(dir.path()).err().unwrap().to_string();
    assert!(error.contains("chat_template.jinja"), "{error}");
    std::fs::write(dir.path().join("tokenizer.json"), b"\xff\xfe{}").unwrap();
    let error = HfTextCodec::load(dir.path()).err().unwrap().to_string();
    assert!(error.contains("tokenizer.json: not valid JSON"), "{error}");
}

/// Compared with answers recorded from vLLM for the model of the conformance suite.
#[test]
fn the_conformance_model_answers_as_recorded() {
    let dir = std::env::var_os("PLAYHOUSE_CONFORMANCE_MODEL").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/conformance/model"),
        PathBuf::from,
    );
    if !dir.join("tokenizer.json").exists() {
        println!("skipped: no conformance model in {}", dir.display());
        return;
    }
    let codec = HfTextCodec::load(&dir).unwrap();
    codec.check_vocab(2112).unwrap();
    let hello = [282, 78, 333, 1224, 1368];
    assert_eq!(codec.encode("hello world", true).unwrap(), hello);
    let pieces: Vec<_> = hello.iter().filter_map(|&token| codec.token_piece(token)).collect();
    assert_eq!(pieces, ["he", "l", "lo", "Ġwor", "ld"]);
    assert_eq!(codec.decode(&hello, true).unwrap(), "hello world");
    assert_eq!(codec.eos_token(), Some(("<|im_end|>".to_owned(), 2)));

    let messages = vec![json!({"role": "user", "content": "Hi"})];
    let chat = ChatPrompt { messages, add_generation_prompt: true, ..ChatPrompt::default() };
    let prompt = codec.render_chat(&chat).unwrap();
    assert_eq!(
        codec.encode(&prompt, false).unwrap(),
        [1, 1560, 201, 42, 75, 2, 201, 1, 67, 319, 617, 793, 201]
    );
}
