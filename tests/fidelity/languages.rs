//! Languages that a request names, in a running engine: its answers equal those of transformers,
//! also while actors die. `make_languages.py` recorded them with models of `make_texts.py`.

use std::path::Path;

use playhouse::{
    Engine, EngineConfig,
    api::{How, Prompt, RawRequest, RequestLanguages, Role},
    config::{Device, Dtype},
};
use serde::Deserialize;

use crate::engine::{self, collect};
use crate::texts::folder;

const NAMES: [&str; 3] = ["mbart", "mbart-wide", "m2m_100"];

#[derive(Deserialize)]
struct Recorded {
    model: String,
    text: String,
    source_lang: Option<String>,
    target_lang: Option<String>,
    prompt_token_ids: Vec<u32>,
    greedy_token_ids: Vec<u32>,
}

fn recorded(name: &str) -> Vec<Recorded> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fidelity/languages.json");
    let all: Vec<Recorded> = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    all.into_iter().filter(|recorded| recorded.model == name).collect()
}

fn request(recorded: &Recorded) -> RawRequest {
    let request = engine::request(&[], recorded.greedy_token_ids.len(), 0.0, 0);
    let (source, target) = (recorded.source_lang.clone(), recorded.target_lang.clone());
    let languages = RequestLanguages { source, target };
    RawRequest { prompt: Prompt::Text(recorded.text.clone()), languages, ..request }
}

async fn start(name: &str) -> Engine {
    let config = EngineConfig {
        allow_chaos: true,
        device: Device::Cpu,
        dtype: Dtype::Float32,
        ..EngineConfig::new(folder(name))
    };
    Engine::spawn(config, |_| ()).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_in_the_languages_of_their_requests_outlive_actors() {
    for name in NAMES {
        let (engine, texts) = (start(name).await, recorded(name));
        assert_eq!(texts.len(), 20, "{name}");
        for role in [None, Some(Role::Worker), Some(Role::EncoderWorker), Some(Role::Scheduler)] {
            let mut streams = Vec::new();
            for text in &texts {
                let salt = role.map(|role| format!("{role:?}"));
                let request = RawRequest { cache_salt: salt, ..request(text) };
                let mut submission = engine.submit(request).await.unwrap();
                assert_eq!(*submission.prompt_token_ids, *text.prompt_token_ids, "{name}");
                streams.push(submission.choices.remove(0));
            }
            if let Some(role) = role {
                engine.chaos().strike(role, 0, How::Kill).unwrap();
            }
            for (text, stream) in texts.iter().zip(streams) {
                let Recorded { text, source_lang, target_lang, greedy_token_ids, .. } = text;
                let what = format!("{name}: {text:?} from {source_lang:?} to {target_lang:?}");
                assert_eq!(collect(stream).await.tokens, *greedy_token_ids, "{what}, {role:?}");
            }
        }
        engine.shutdown().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_language_beside_a_cut_text_counts_as_a_token() {
    let engine = start("mbart").await;
    let text = |len: usize, truncate: Option<i64>| {
        let languages = RequestLanguages { source: Some("de_DE".to_owned()), target: None };
        RawRequest {
            languages,
            truncate_prompt_tokens: truncate,
            max_tokens: Some(1),
            ..RawRequest::new(Prompt::Text("a".repeat(len)))
        }
    };
    // 62 letters, the end and the language.
    assert_eq!(engine.submit(text(62, None)).await.unwrap().num_input_tokens(), 64 + 1);
    let refused = engine.submit(text(63, None)).await.unwrap_err().to_string();
    assert!(refused.contains("at most 64 tokens") && refused.contains("least 65"), "{refused}");
    assert_eq!(engine.submit(text(90, Some(10))).await.unwrap().num_input_tokens(), 10 + 1);
    engine.shutdown().await;
}
