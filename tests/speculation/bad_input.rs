//! Draft models that cannot guess are refused at the start, with the difference.

use std::{fs, path::Path};

use playhouse::{
    Engine, EngineConfig,
    config::{HeadMethod, SpeculativeConfig, SpeculativeMethod},
};

use crate::{
    draft_model,
    heads::{head, write_eagle3},
};

async fn refused(model: &Path) -> String {
    refused_method(SpeculativeMethod::DraftModel { model: model.to_owned() }).await
}

async fn refused_head(method: HeadMethod, model: &Path) -> String {
    refused_method(SpeculativeMethod::Head { method, model: Some(model.to_owned()) }).await
}

async fn refused_method(method: SpeculativeMethod) -> String {
    let config = EngineConfig {
        speculative_config: Some(SpeculativeConfig::new(method, 3)),
        num_gpu_blocks_override: Some(300),
        ..EngineConfig::default()
    };
    let started = Engine::spawn(config, |_| ()).await;
    started.err().unwrap().to_string()
}

/// Copies the draft model, with another tokenizer.
fn with_tokenizer(change: impl FnOnce(&mut serde_json::Value)) -> tempfile::TempDir {
    let folder = tempfile::TempDir::new().unwrap();
    for entry in fs::read_dir(draft_model()).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
    }
    let path = folder.path().join("tokenizer.json");
    let mut json: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    change(&mut json);
    fs::write(&path, json.to_string()).unwrap();
    folder
}

/// Copies the draft model, with the ids of two of its tokens exchanged.
fn exchanged() -> tempfile::TempDir {
    with_tokenizer(|json| {
        let vocab = json["model"]["vocab"].as_object_mut().unwrap();
        for id in vocab.values_mut() {
            *id = match id.as_u64() {
                Some(700) => 701.into(),
                Some(701) => 700.into(),
                _ => continue,
            };
        }
    })
}

/// As in vLLM. Models of one series have other special tokens in each version.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_draft_model_may_have_other_special_tokens() {
    let folder = with_tokenizer(|json| {
        let added = json["added_tokens"].as_array_mut().unwrap();
        let special = added.iter_mut().find(|token| token["content"] == "<|im_start|>").unwrap();
        assert_eq!(special["special"], true);
        special["content"] = "<|reserved|>".into();
        added.retain(|token| token["content"] != "</tool_response>");
        let vocab = json["model"]["vocab"].as_object_mut().unwrap();
        let id = vocab.remove("<|im_start|>").unwrap();
        vocab.insert("<|reserved|>".to_owned(), id);
    });
    let method = SpeculativeMethod::DraftModel { model: folder.path().to_owned() };
    let config = EngineConfig {
        speculative_config: Some(SpeculativeConfig::new(method, 3)),
        num_gpu_blocks_override: Some(300),
        ..EngineConfig::default()
    };
    Engine::spawn(config, |_| ()).await.unwrap().shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_draft_model_that_is_not_there_is_named() {
    let error = refused(Path::new("no/such/folder")).await;
    assert!(error.contains("speculative_config: no model at no/such/folder"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_draft_model_with_another_vocabulary_is_refused() {
    // The same size, with the ids of two tokens exchanged.
    let folder = exchanged();
    let error = refused(folder.path()).await;
    assert!(error.contains("its token ") && error.contains("and the model's"), "{error}");
    let small = tempfile::TempDir::new().unwrap();
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/conformance/model");
    if model.join("config.json").is_file() {
        let error = refused(&model).await;
        assert!(error.contains("its vocabulary has"), "{error}");
    }
    let error = refused(small.path()).await;
    assert!(error.contains("config.json: cannot be read"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_that_does_not_fit_is_refused_with_the_difference() {
    let missing = refused_head(HeadMethod::Eagle, Path::new("no/such/folder")).await;
    assert!(missing.contains("speculative_config: no model at no/such/folder"), "{missing}");
    // The demo model has no layer after the last.
    let method = SpeculativeMethod::Head { method: HeadMethod::Mtp, model: None };
    let error = refused_method(method).await;
    let part = "is not read: num_nextn_predict_layers is 0 or absent";
    assert!(error.contains(part), "{error}");
    let cases = [
        (HeadMethod::Eagle, head(HeadMethod::MlpSpeculator), "architectures"),
        (HeadMethod::MlpSpeculator, head(HeadMethod::Eagle3), "MLPSpeculatorPreTrainedModel"),
        (HeadMethod::Eagle, draft_model(), "LlamaForCausalLMEagle"),
        // This one was made for a model of 32 elements.
        (HeadMethod::Mtp, head(HeadMethod::Mtp), "have 32 elements, and the model's 256"),
    ];
    for (method, folder, part) in cases {
        let error = refused_head(method, &folder).await;
        assert!(error.contains(part), "{method:?}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_values_of_a_heads_config_are_named() {
    let cases = [
        ("vocab_size", 100.into(), "vocabulary has 100 tokens, and the model's 3072"),
        ("draft_vocab_size", 4_000.into(), "draft_vocab_size is 4000"),
        ("draft_vocab_size", 400.into(), "has shape [500, 256]"),
        ("num_hidden_layers", 2.into(), "layers.1."),
        ("eagle_aux_hidden_state_layer_ids", serde_json::json!([1, 3, 7]), "indices up to 6"),
        // By default the second and the third are equal.
        ("eagle_aux_hidden_state_layer_ids", serde_json::Value::Null, "[2, 3, 3]"),
    ];
    let cases = cases.into_iter().chain([
        ("norm_before_fc", true.into(), "input_norm.weight"),
        ("fc_norm", true.into(), "fc_norm.0.weight"),
        ("fc_norm", "yes".into(), "fc_norm"),
        ("speculators_model_type", "dflash".into(), "its speculators_model_type is dflash"),
        ("speculators_model_type", "eagle3".into(), "transformer_layer_config"),
    ]);
    for (field, value, part) in cases {
        let folder = tempfile::TempDir::new().unwrap();
        write_eagle3(folder.path(), |config| config[field] = value);
        let error = refused_head(HeadMethod::Eagle3, folder.path()).await;
        assert!(error.contains(part), "{field}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drafter_may_be_no_longer_than_the_model() {
    let method = SpeculativeMethod::DraftModel { model: draft_model() };
    let max_model_len = Some(5_000_000);
    let config = EngineConfig {
        speculative_config: Some(SpeculativeConfig {
            max_model_len,
            ..SpeculativeConfig::new(method, 3)
        }),
        num_gpu_blocks_override: Some(300),
        ..EngineConfig::default()
    };
    let error = Engine::spawn(config, |_| ()).await.err().unwrap().to_string();
    assert!(error.contains("max_model_len of the drafter"), "{error}");
}

/// A token of the head that the model does not have would be an index out of range.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_with_an_unknown_token_is_refused() {
    let folder = tempfile::TempDir::new().unwrap();
    write_eagle3(folder.path(), |_| ());
    let path = folder.path().join("model.safetensors");
    let mut bytes = fs::read(&path).unwrap();
    let known = 300_i64.to_le_bytes();
    let at = bytes.windows(8).position(|window| window == known).unwrap();
    bytes[at..at + 8].copy_from_slice(&(-5_i64).to_le_bytes());
    fs::write(&path, bytes).unwrap();
    let error = refused_head(HeadMethod::Eagle3, folder.path()).await;
    assert!(error.contains("d2t") && error.contains("names no token"), "{error}");
}
