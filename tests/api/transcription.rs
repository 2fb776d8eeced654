//! `/v1/audio/transcriptions` with a model that also chats. Prompts are those of mistral-common and
//! of the processors of GLM-ASR, Granite Speech, Qwen3-ASR and Qwen3-Omni. Texts are those of
//! transformers: `tests/fidelity/make_transcription.py`, `make_granite_speech.py` and
//! `make_omni.py` recorded all.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use playhouse::{
    EngineConfig,
    config::{Device, Dtype},
    server::ServerConfig,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{serving::Served, speech};

/// The bytes of a WAV file before its samples.
const HEADER: usize = 44;
const TOKENS: &str = "20";

/// A sound, and the answer about it.
#[derive(Deserialize)]
struct Golden {
    /// Sounds of `speech`, one after the other.
    parts: Vec<String>,
    language: Option<String>,
    /// The language of a translation.
    to_language: Option<String>,
    token_ids: Vec<u32>,
    text: String,
}

/// A sound, the fields of a form, and what a model of Qwen writes.
#[derive(Deserialize)]
struct Written {
    parts: Vec<String>,
    fields: BTreeMap<String, String>,
    token_ids: Vec<u32>,
    output: String,
    text: String,
}

impl Written {
    /// Returns the fields of a form that asks for this answer.
    fn fields(&self) -> Vec<(&str, &str)> {
        let fields = self.fields.iter().map(|(name, text)| (name.as_str(), text.as_str()));
        fields.chain([("max_completion_tokens", TOKENS)]).collect()
    }
}

fn tests() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fidelity")
}

fn recorded(model: &str) -> Vec<Golden> {
    serde_json::from_slice(&golden(model)).unwrap()
}

fn golden(model: &str) -> Vec<u8> {
    let folder = tests().join("transcription").join(model);
    std::fs::read(folder.join("golden.json")).unwrap()
}

/// Starts a server of a model.
pub(crate) async fn served(model: &str) -> Served {
    served_from(tests().join("transcription").join(model)).await
}

async fn served_from(model: PathBuf) -> Served {
    Served::start(config(model), ServerConfig::default()).await
}

fn config(model: PathBuf) -> EngineConfig {
    EngineConfig {
        served_model_name: vec!["tiny".to_owned()],
        dtype: Dtype::Float32,
        kv_cache_memory_bytes: Some(16 << 20),
        device: Device::Cpu,
        ..EngineConfig::new(model)
    }
}

/// Starts a server of a model of Granite Speech with the adapter `a`.
pub(crate) async fn served_with_an_adapter() -> Served {
    let folder = tests().join("transcription");
    let engine = EngineConfig {
        enable_lora: true,
        max_loras: 1,
        max_lora_rank: 8,
        ..config(folder.join("granite_speech"))
    };
    let served = Served::start(engine, ServerConfig::default()).await;
    let adapter = folder.join("granite_speech-adapter").to_string_lossy().into_owned();
    served.engine.load_lora_adapter("a", &adapter, false).await.unwrap();
    served
}

/// Returns sounds as one file.
fn file(parts: &[String]) -> Vec<u8> {
    let read = |name: &String| std::fs::read(tests().join(format!("speech/{name}.wav"))).unwrap();
    let mut file = read(&parts[0]);
    for part in &parts[1..] {
        file.extend_from_slice(&read(part)[HEADER..]);
    }
    let len = file.len() as u32;
    file[4..8].copy_from_slice(&(len - 8).to_le_bytes());
    file[40..44].copy_from_slice(&(len - HEADER as u32).to_le_bytes());
    file
}

/// Returns the fields of a form that asks for a recorded answer.
fn fields(golden: &Golden) -> Vec<(&str, &str)> {
    let language = golden.language.as_deref().map(|code| ("language", code));
    let to_language = golden.to_language.as_deref().map(|code| ("to_language", code));
    let languages = language.into_iter().chain(to_language);
    languages.chain([("max_completion_tokens", TOKENS)]).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn texts_of_voxtral_are_those_of_transformers() {
    check_texts("voxtral").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn texts_of_glm_asr_are_those_of_transformers() {
    check_texts("glm_asr").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn texts_of_granite_speech_are_those_of_transformers() {
    check_texts("granite_speech").await;
    let served = served("granite_speech").await;
    let file = file(&["rising".to_owned()]);
    let fields = [("language", "xx")];
    let (status, answer) = speech::post(&served, "transcriptions", Some(&file), &fields).await;
    let message = answer["error"]["message"].as_str().unwrap_or_default();
    let part = "Must be one of ['en', 'fr', 'de', 'ja', 'pt', 'es']";
    assert!(status == 400 && message.contains(part), "{answer}");
    served.stop().await;
}

/// The texts with the adapter are those of transformers with PEFT.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_may_be_an_adapter() {
    let served = served_with_an_adapter().await;
    let base = recorded("granite_speech");
    for golden in recorded("granite_speech-adapter") {
        let (file, fields) = (file(&golden.parts), fields(&golden));
        let of_base = |it: &&Golden| it.parts == golden.parts && it.to_language.is_none();
        let plain = &base.iter().find(of_base).unwrap().text;
        assert_ne!(*plain, golden.text, "the adapter has no effect");
        for (model, text) in [("a", &golden.text), ("tiny", plain)] {
            let fields = [&fields[..], &[("model", model)]].concat();
            let (status, answer) =
                speech::post(&served, "transcriptions", Some(&file), &fields).await;
            assert_eq!((status, &answer["text"]), (200, &json!(text)), "{model}: {answer}");
        }
    }
    let file = file(&["rising".to_owned()]);
    let fields = [("model", "b")];
    let (status, answer) = speech::post(&served, "transcriptions", Some(&file), &fields).await;
    assert_eq!(status, 404, "{answer}");
    served.stop().await;
}

/// A prompt may have no place for a text before the sound's, which then has no effect.
async fn check_texts(model: &str) {
    let served = served(model).await;
    for golden in recorded(model) {
        let (file, fields) = (file(&golden.parts), fields(&golden));
        let is_translated = golden.to_language.is_some();
        let route = if is_translated { "translations" } else { "transcriptions" };
        let (status, answer) = speech::post(&served, route, Some(&file), &fields).await;
        let what = format!("{:?} {fields:?}: {answer}", golden.parts);
        assert_eq!((status, &answer["text"]), (200, &json!(golden.text)), "{what}");
        assert_eq!(answer["usage"]["type"] == "duration", !is_translated, "{what}");
        let with_prompt = [&fields[..], &[("prompt", "Names: Ann")]].concat();
        let (_, again) = speech::post(&served, route, Some(&file), &with_prompt).await;
        assert_eq!(again["text"], answer["text"], "{what}");
    }
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prompts_are_those_of_mistral_common() {
    let served = served("voxtral").await;
    for golden in recorded("voxtral") {
        let language = golden.language.map(|code| format!("lang:{code}")).unwrap_or_default();
        let prompt = format!("<s>[INST][BEGIN_AUDIO][AUDIO][/INST]{language}[TRANSCRIBE]");
        let body = json!({"model": "tiny", "prompt": prompt, "add_special_tokens": false});
        let request = reqwest::Client::new().post(format!("{}/tokenize", served.url)).json(&body);
        let answer: Value = request.send().await.unwrap().json().await.unwrap();
        // One token stands for all of a sound.
        let mut expected = golden.token_ids;
        expected.dedup();
        assert_eq!(answer["tokens"], json!(expected), "{prompt}");
    }
    served.stop().await;
}

/// A stream reports the tokens of the whole prompt, with those of the sound.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_counts_the_tokens_of_its_prompt() {
    let served = served("voxtral").await;
    for golden in recorded("voxtral") {
        let options = [("stream", "true"), ("stream_include_usage", "true")];
        let fields = [&fields(&golden)[..], &options].concat();
        let events = speech::stream(&served, &file(&golden.parts), &fields).await;
        let content = |event: &Value| event["choices"][0]["delta"]["content"].clone();
        let text: String =
            events.iter().filter_map(|event| content(event).as_str().map(str::to_owned)).collect();
        assert_eq!(text, golden.text);
        let usage = &events.last().unwrap()["usage"];
        assert_eq!(usage["prompt_tokens"], json!(golden.token_ids.len()), "{usage}");
        assert_eq!(usage["completion_tokens"], json!(20), "{usage}");
    }
    served.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_tasks_are_refused_and_chats_remain() {
    let served = served("voxtral").await;
    let file = file(&["rising".to_owned()]);
    let (status, answer) = speech::post(&served, "translations", Some(&file), &[]).await;
    assert_eq!(status, 404, "{answer}");
    let message = answer["error"]["message"].as_str().unwrap();
    assert_eq!(message, "The model does not support Translations API");
    for (field, text, part) in [
        ("response_format", "verbose_json", "Currently do not support verbose_json for tiny"),
        ("language", "xx", "['ar', 'nl', 'en', 'fr', 'de', 'hi', 'it', 'pt', 'es']"),
    ] {
        let fields = [(field, text)];
        let (status, answer) = speech::post(&served, "transcriptions", Some(&file), &fields).await;
        let message = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(status == 400 && message.contains(part), "{answer}");
    }
    let body = json!({"model": "tiny", "prompt": "Once", "max_tokens": 3});
    let url = format!("{}/v1/completions", served.url);
    let answer = reqwest::Client::new().post(url).json(&body).send().await.unwrap();
    assert_eq!(answer.status().as_u16(), 200);
    served.stop().await;
}

/// Its text is behind the last mark of its output.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn texts_of_qwen3_asr_are_those_of_transformers() {
    let served = served("qwen3_asr").await;
    check_written(&served, &golden("qwen3_asr")).await;
    let sound = file(&["rising".to_owned()]);
    for (field, text, part) in [
        ("response_format", "verbose_json", "Currently do not support verbose_json for tiny"),
        ("to_language", "xx", "Unsupported language: 'xx'"),
    ] {
        let fields = [(field, text)];
        let (status, answer) = speech::post(&served, "translations", Some(&sound), &fields).await;
        let message = answer["error"]["message"].as_str().unwrap_or_default();
        assert!(status == 400 && message.contains(part), "{answer}");
    }
    served.stop().await;
}

/// Its prompts are chats.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn texts_of_qwen3_omni_are_those_of_transformers() {
    let folder = tests().join("omni/qwen3_omni");
    let golden = std::fs::read(folder.join("transcription.json")).unwrap();
    let served = served_from(folder).await;
    check_written(&served, &golden).await;
    served.stop().await;
}

async fn check_written(served: &Served, golden: &[u8]) {
    let all: Vec<Written> = serde_json::from_slice(golden).unwrap();
    for golden in &all {
        let (file, fields) = (file(&golden.parts), golden.fields());
        let is_translated = golden.fields.contains_key("to_language");
        let route = if is_translated { "translations" } else { "transcriptions" };
        let (status, answer) = speech::post(served, route, Some(&file), &fields).await;
        let what = format!("{:?} {fields:?}: {answer}", golden.parts);
        assert_eq!((status, &answer["text"]), (200, &json!(golden.text)), "{what}");
        if is_translated {
            continue;
        }
        // No output begins with a language, so all of it is sent. That is vLLM's rule.
        let options = [("stream", "true"), ("stream_include_usage", "true")];
        let fields = [&fields[..], &options].concat();
        let events = speech::stream(served, &file, &fields).await;
        let content = |event: &Value| event["choices"][0]["delta"]["content"].clone();
        let text: String =
            events.iter().filter_map(|event| content(event).as_str().map(str::to_owned)).collect();
        assert_eq!(text, golden.output, "{what}");
        let usage = &events.last().unwrap()["usage"];
        assert_eq!(usage["prompt_tokens"], json!(golden.token_ids.len()), "{what}: {usage}");
    }
}
