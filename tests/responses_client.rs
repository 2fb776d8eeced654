//! The Responses API under OpenAI's own Python client, unmodified. `PLAYHOUSE_TEST_PYTHON` names a
//! Python that has it; without one the test says so and passes.

// Helpers of a test may unwrap, as tests may.
#![allow(clippy::unwrap_used)]

mod serving;

use std::process::Command;

use playhouse::{
    EngineConfig,
    config::ParserChoice,
    parsers::{ReasoningEvent, ReasoningParser, ToolEvent, ToolParser},
    server::ServerConfig,
};
use serving::Served;

/// What the script exits with where the client is not installed.
const NO_CLIENT: i32 = 3;
const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn engine() -> EngineConfig {
    EngineConfig {
        served_model_name: vec!["demo".to_owned()],
        kv_cache_memory_bytes: Some(64 << 20),
        ..EngineConfig::new(format!("{ROOT}/examples/demo-model"))
    }
}

/// A server with two keys, whose model thinks and calls by the rules below, though its weights are
/// random.
fn reading() -> ServerConfig {
    let mut server = ServerConfig {
        api_keys: vec!["first".to_owned(), "second".to_owned()],
        tool_call_parser: ParserChoice::Named("echo".to_owned()),
        reasoning_parser: ParserChoice::Named("blink".to_owned()),
        ..ServerConfig::default()
    };
    server.parsers.register_tool_parser("echo", |_| Box::new(Echo::default()));
    server.parsers.register_reasoning_parser("blink", |_| Box::new(Blink::default()));
    server
}

/// Takes all that comes for the argument `text` of one call.
#[derive(Default)]
struct Echo {
    is_open: bool,
}

impl ToolParser for Echo {
    fn push(&mut self, text: &str) -> Vec<ToolEvent> {
        if text.is_empty() {
            return Vec::new();
        }
        let json = serde_json::to_string(text).unwrap();
        let mut delta = json[1..json.len() - 1].to_owned();
        let mut events = Vec::new();
        if !std::mem::replace(&mut self.is_open, true) {
            events.push(ToolEvent::CallStart { index: 0, name: "echo".to_owned(), id: None });
            delta.insert_str(0, "{\"text\": \"");
        }
        events.push(ToolEvent::CallArguments { index: 0, delta });
        events
    }

    fn finish(&mut self) -> Vec<ToolEvent> {
        if !self.is_open {
            return Vec::new();
        }
        let delta = "\"}".to_owned();
        vec![ToolEvent::CallArguments { index: 0, delta }, ToolEvent::CallEnd { index: 0 }]
    }
}

/// The first character is a thought.
#[derive(Default)]
struct Blink {
    is_over: bool,
}

impl ReasoningParser for Blink {
    fn push(&mut self, text: &str) -> Vec<ReasoningEvent> {
        let mut events = Vec::new();
        let mut chars = text.chars();
        if !self.is_over
            && let Some(first) = chars.next()
        {
            self.is_over = true;
            events.push(ReasoningEvent::Reasoning(first.to_string()));
        }
        if !chars.as_str().is_empty() {
            events.push(ReasoningEvent::Content(chars.as_str().to_owned()));
        }
        events
    }

    fn finish(&mut self) -> Vec<ReasoningEvent> {
        Vec::new()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_official_client_is_served() {
    let python = std::env::var("PLAYHOUSE_TEST_PYTHON").unwrap_or("python3".to_owned());
    let plain = Served::start(engine(), ServerConfig::default()).await;
    let reading = Served::start(engine(), reading()).await;
    let mut script = Command::new(&python);
    script.arg(format!("{ROOT}/tests/responses_client.py")).args([&plain.url, &reading.url]);
    let output = tokio::task::spawn_blocking(move || script.output()).await.unwrap();
    plain.stop().await;
    reading.stop().await;
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
