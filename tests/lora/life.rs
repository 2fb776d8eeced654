//! The life of adapters: more than fit, a reload in place, an unload while requests use them.

use std::{fs, path::Path};

use playhouse::{
    Engine, EngineConfig, LoraError, api::FinishReason, config::LoraModule, server::ServerConfig,
};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{adapter, collect, config, request, serving::Served, submit};

const MODEL: &str = "llama-gqa-f16";
const PROMPT: [u32; 5] = [5, 9, 7, 20, 31];

fn copy(name: &str) -> TempDir {
    let copy = TempDir::new().unwrap();
    replace(&copy, name);
    copy
}

fn replace(folder: &TempDir, name: &str) {
    for file in fs::read_dir(adapter(MODEL, name)).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), folder.path().join(file.file_name())).unwrap();
    }
}

/// The settings of the hub hold for adapters that are loaded while the server runs, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_adapter_by_its_name_is_found_in_the_cache() {
    let (cache, files) = (TempDir::new().unwrap(), copy("a"));
    let snapshot = cache.path().join("models--org--pirate/snapshots/main");
    fs::create_dir_all(snapshot.parent().unwrap()).unwrap();
    fs::rename(files.path(), &snapshot).unwrap();
    let download_dir = Some(cache.path().to_owned());
    let config = EngineConfig { download_dir, offline: true, ..config(MODEL) };
    let engine = Engine::start(config).await.unwrap();
    let lora = engine.load_lora_adapter("pirate", "org/pirate", false).await.unwrap();
    assert_eq!(Path::new(&*lora.path), snapshot);
    let absent = engine.load_lora_adapter("other", "org/absent", false).await.unwrap_err();
    assert!(matches!(absent, LoraError::Hub { .. }), "{absent}");
    let expected = "Loading lora other failed: No adapter found for org/absent: the model org/";
    assert!(absent.to_string().starts_with(expected), "{absent}");
    engine.shutdown().await;
}

/// As in vLLM, `root` is the adapter's path as it was given, and `parent` its `base_model_name`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_card_of_an_adapter_names_its_origin_and_its_base() {
    let (cache, files) = (TempDir::new().unwrap(), copy("a"));
    let snapshot = cache.path().join("models--org--pirate/snapshots/main");
    fs::create_dir_all(snapshot.parent().unwrap()).unwrap();
    fs::rename(files.path(), &snapshot).unwrap();
    let module = |name: &str, path: String, base: Option<&str>| LoraModule {
        name: name.to_owned(),
        path,
        base_model_name: base.map(str::to_owned),
    };
    let folder = adapter(MODEL, "b");
    let config = EngineConfig {
        served_model_name: vec!["first".to_owned(), "second".to_owned()],
        lora_modules: vec![
            module("named", snapshot.to_string_lossy().into_owned(), Some("second")),
            module("plain", folder.clone(), None),
        ],
        ..config(MODEL)
    };
    let served = Served::start(config, ServerConfig::default()).await;
    let answer = reqwest::get(format!("{}/v1/models", served.url)).await.unwrap();
    let answer: Value = answer.json().await.unwrap();
    let card = |index: usize| {
        let card = &answer["data"][index];
        json!([card["id"], card["root"], card["parent"]])
    };
    assert_eq!(card(2), json!(["named", "org/pirate", "second"]), "{answer}");
    assert_eq!(card(3), json!(["plain", folder, "first"]), "{answer}");
    served.stop().await;
}

/// One adapter may be in use at a time, and one is in memory. All others wait aside and are read
/// again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_adapters_than_fit_take_turns() {
    let engine = |max_loras| EngineConfig { max_loras, ..config(MODEL) };
    let wide = Engine::start(engine(4)).await.unwrap();
    let narrow = Engine::start(engine(1)).await.unwrap();
    let mut expected = Vec::new();
    for engine in [&wide, &narrow] {
        for (name, path) in [("a", "a"), ("b", "b"), ("c", "a"), ("d", "b")] {
            engine.load_lora_adapter(name, &adapter(MODEL, path), false).await.unwrap();
        }
        let mut streams = Vec::new();
        for name in ["a", "b", "c", "d", "a", "b"] {
            let lora = engine.lora_adapter(name).await.unwrap();
            streams.push(submit(engine, request(&PROMPT, 12, Some(&lora))).await);
            streams.push(submit(engine, request(&PROMPT, 12, None)).await);
        }
        let mut outputs = Vec::new();
        for stream in streams {
            outputs.push(collect(stream).await);
        }
        assert!(outputs.iter().all(|output| output.finish == FinishReason::Length), "{outputs:?}");
        if expected.is_empty() {
            expected = outputs;
        } else {
            assert_eq!(outputs, expected);
        }
    }
    assert_ne!(expected[0], expected[1], "the adapter has no effect");
    assert_ne!(expected[0], expected[2], "two adapters are alike");
    assert_eq!(expected[0], expected[4], "the same files under two names");
    wide.shutdown().await;
    narrow.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_in_place_changes_requests_from_then_on() {
    let engine = Engine::start(config(MODEL)).await.unwrap();
    let folder = copy("a");
    let path = folder.path().to_string_lossy().into_owned();
    let first = engine.load_lora_adapter("x", &path, false).await.unwrap();
    let before = collect(submit(&engine, request(&PROMPT, 8, Some(&first))).await).await;
    let again = engine.load_lora_adapter("x", &path, false).await;
    assert!(matches!(again, Err(LoraError::AlreadyLoaded { .. })), "{again:?}");
    replace(&folder, "b");
    let second = engine.load_lora_adapter("x", &path, true).await.unwrap();
    assert_eq!((first.version, second.version), (0, 1), "block hashes differ by the version");
    let after = collect(submit(&engine, request(&PROMPT, 8, Some(&second))).await).await;
    assert_ne!(before.tokens, after.tokens);
    // Requests that name the first content still get it, as long as it is in memory.
    let old = collect(submit(&engine, request(&PROMPT, 8, Some(&first))).await).await;
    assert_eq!(old, before);
    engine.shutdown().await;
}

/// The files of an adapter that has to be read again may have changed, or may be gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_adapter_fails_its_requests_alone() {
    let engine = Engine::start(EngineConfig { max_loras: 1, ..config(MODEL) }).await.unwrap();
    let folder = copy("a");
    let path = folder.path().to_string_lossy().into_owned();
    let lost = engine.load_lora_adapter("lost", &path, false).await.unwrap();
    collect(submit(&engine, request(&PROMPT, 2, Some(&lost))).await).await;
    let other = engine.load_lora_adapter("b", &adapter(MODEL, "b"), false).await.unwrap();
    collect(submit(&engine, request(&PROMPT, 2, Some(&other))).await).await;
    replace(&folder, "b");
    let streams = [
        submit(&engine, request(&PROMPT, 8, Some(&lost))).await,
        submit(&engine, request(&PROMPT, 8, Some(&other))).await,
        submit(&engine, request(&PROMPT, 8, None)).await,
    ];
    let [failed, with_other, base] = streams;
    let FinishReason::Error(failure) = collect(failed).await.finish else { unreachable!() };
    assert!(failure.to_string().contains("changed after it was loaded"), "{failure}");
    assert_eq!(collect(with_other).await.finish, FinishReason::Length);
    assert_eq!(collect(base).await.finish, FinishReason::Length);
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unloaded_adapter_stays_with_its_requests() {
    let engine = Engine::start(config(MODEL)).await.unwrap();
    let lora = engine.load_lora_adapter("a", &adapter(MODEL, "a"), false).await.unwrap();
    let whole = collect(submit(&engine, request(&PROMPT, 40, Some(&lora))).await).await;
    let stream = submit(&engine, request(&PROMPT, 40, Some(&lora))).await;
    engine.unload_lora_adapter("a").unwrap();
    assert!(matches!(engine.lora_adapter("a").await, Err(LoraError::Unknown { .. })));
    assert!(matches!(engine.unload_lora_adapter("a"), Err(LoraError::Unknown { .. })));
    assert_eq!(collect(stream).await, whole);
    engine.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_resolver_finds_adapters_by_their_names_alone() {
    let root = TempDir::new().unwrap();
    fs::create_dir(root.path().join("inside")).unwrap();
    let outside = root.path().join("pirate");
    fs::create_dir(&outside).unwrap();
    let found = root.path().join("inside/mine");
    fs::create_dir(&found).unwrap();
    for folder in [&outside, &found] {
        for file in fs::read_dir(adapter(MODEL, "a")).unwrap() {
            let file = file.unwrap();
            fs::copy(file.path(), folder.join(file.file_name())).unwrap();
        }
    }
    let lora_resolver_dir = Some(root.path().join("inside"));
    let engine = Engine::start(EngineConfig { lora_resolver_dir, ..config(MODEL) }).await.unwrap();
    assert!(engine.lora_adapter("mine").await.is_ok());
    assert_eq!(engine.lora_adapters().len(), 1);
    for name in ["../pirate", "/etc", "mine/../mine", "nothing", "", "."] {
        let found = engine.lora_adapter(name).await;
        assert!(matches!(found, Err(LoraError::Unknown { .. })), "{name:?}: {found:?}");
    }
    engine.shutdown().await;
}
