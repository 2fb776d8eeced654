//! Draft models that cannot guess are refused at the start, with the difference.

use std::{fs, path::Path};

use playhouse::{
    Engine, EngineConfig,
    config::{SpeculativeConfig, SpeculativeMethod},
};

use crate::draft_model;

async fn refused(model: &Path) -> String {
    let method = SpeculativeMethod::DraftModel { model: model.to_owned() };
    let config = EngineConfig {
        speculative_config: Some(SpeculativeConfig { method, num_speculative_tokens: 3 }),
        num_gpu_blocks_override: Some(300),
        ..EngineConfig::default()
    };
    let started = Engine::spawn(config, |_| ()).await;
    started.err().unwrap().to_string()
}

/// Copies the draft model, with the ids of two of its tokens exchanged.
fn exchanged() -> tempfile::TempDir {
    let folder = tempfile::TempDir::new().unwrap();
    for entry in fs::read_dir(draft_model()).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
    }
    let path = folder.path().join("tokenizer.json");
    let mut json: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    let vocab = json["model"]["vocab"].as_object_mut().unwrap();
    for id in vocab.values_mut() {
        *id = match id.as_u64() {
            Some(700) => 701.into(),
            Some(701) => 700.into(),
            _ => continue,
        };
    }
    fs::write(&path, json.to_string()).unwrap();
    folder
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
