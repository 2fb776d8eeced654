//! Adapters of an engine whose model is in a process of its own.

use std::{fs, path::Path};

use playhouse::{
    Engine, LoraError,
    api::{ChoiceStream, EngineIndex, FinishReason},
    engine::ProcessStrike,
};
use tempfile::TempDir;

use super::{Output, adapter, collect, config, request, submit};

const MODEL: &str = "llama-gqa-f16";
const PROMPT: [u32; 5] = [5, 9, 7, 20, 31];

async fn streams(engine: &Engine) -> Vec<ChoiceStream> {
    for name in ["a", "b"] {
        if !engine.has_lora_adapter(name) {
            engine.load_lora_adapter(name, &adapter(MODEL, name), false).await.unwrap();
        }
    }
    let mut streams = Vec::new();
    for name in [Some("a"), None, Some("b"), Some("a")] {
        let lora = match name {
            Some(name) => Some(engine.lora_adapter(name).await.unwrap()),
            None => None,
        };
        streams.push(submit(engine, request(&PROMPT, 60, lora.as_ref())).await);
    }
    streams
}

async fn outputs(streams: Vec<ChoiceStream>) -> Vec<Output> {
    let mut outputs = Vec::new();
    for stream in streams {
        outputs.push(collect(stream).await);
    }
    outputs
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn adapters_are_the_same_in_an_engine_process_and_survive_it() {
    let alone = Engine::start(config(MODEL)).await.unwrap();
    let expected = outputs(streams(&alone).await).await;
    assert_ne!(expected[0].tokens, expected[1].tokens, "the adapter has no effect");
    assert!(expected.iter().all(|output| output.finish == FinishReason::Length));
    let program = env!("CARGO_BIN_EXE_playhouse");
    let engine = Engine::start_in_process_of(program, config(MODEL)).await.unwrap();
    assert_eq!(outputs(streams(&engine).await).await, expected);
    let running = streams(&engine).await;
    let kill = ProcessStrike::Signal("SIGKILL");
    engine.strike_process(EngineIndex::default(), kill).await.unwrap();
    assert_eq!(outputs(running).await, expected);
    // An adapter that cannot be used is refused in the same words.
    let spoiled = TempDir::new().unwrap();
    for file in fs::read_dir(adapter(MODEL, "a")).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), spoiled.path().join(file.file_name())).unwrap();
    }
    fs::write(spoiled.path().join("adapter_config.json"), "{").unwrap();
    let missing = spoiled.path().join("nowhere");
    for path in [spoiled.path(), &missing] {
        assert_eq!(refusal(&engine, path).await, refusal(&alone, path).await);
    }
    let none = engine.lora_adapter("c").await;
    assert!(matches!(none, Err(LoraError::Unknown { .. })), "{none:?}");
    engine.shutdown().await;
    alone.shutdown().await;
}

async fn refusal(engine: &Engine, path: &Path) -> String {
    let loaded = engine.load_lora_adapter("bad", &path.to_string_lossy(), false).await;
    loaded.unwrap_err().to_string()
}
