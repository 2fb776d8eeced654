//! OpenAI's own Python client, unmodified, against the server. `PLAYHOUSE_TEST_PYTHON` names a
//! Python that has it; without one the test says so and passes.

// Helpers of a test may unwrap, as tests may.
#![allow(clippy::unwrap_used)]

mod serving;

use std::process::Command;

use playhouse::{EngineConfig, server::ServerConfig};
use serving::Served;

/// What the script exits with where the client is not installed.
const NO_CLIENT: i32 = 3;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_official_client_streams() {
    let root = env!("CARGO_MANIFEST_DIR");
    let python = std::env::var("PLAYHOUSE_TEST_PYTHON").unwrap_or("python3".to_owned());
    let engine = EngineConfig {
        kv_cache_memory_bytes: Some(64 << 20),
        ..EngineConfig::new(format!("{root}/examples/demo-model"))
    };
    let served = Served::start(engine, ServerConfig::default()).await;
    let mut script = Command::new(&python);
    script.arg(format!("{root}/tests/openai_client.py")).arg(&served.url);
    let output = tokio::task::spawn_blocking(move || script.output()).await.unwrap();
    served.stop().await;
    match output {
        Err(error) => println!("skipped: {python} does not run: {error}"),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stdout).into_owned()
                + &String::from_utf8_lossy(&output.stderr);
            match output.status.code() {
                Some(0) => println!("{said}"),
                Some(NO_CLIENT) => println!("skipped: {said}"),
                code => panic!("the script ended with {code:?}:\n{said}"),
            }
        }
    }
}
