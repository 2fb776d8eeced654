//! A model that thinks and calls tools by simple rules although its weights are random: its parsers
//! find thoughts and calls in any text.

use playhouse::{
    Engine, EngineConfig,
    config::ParserChoice,
    parsers::{ReasoningEvent, ReasoningParser, ToolEvent, ToolParser},
    server::ServerConfig,
};

/// Starts an engine that has both parsers.
pub(crate) async fn engine(config: EngineConfig) -> Engine {
    let builder = Engine::builder(config)
        .tool_parser("echo", |_| Box::new(Echo::default()))
        .reasoning_parser("blink", |_| Box::new(Blink::default()));
    builder.start().await.unwrap()
}

/// Returns `server` with both parsers chosen.
pub(crate) fn reading(server: ServerConfig) -> ServerConfig {
    ServerConfig {
        tool_call_parser: ParserChoice::Named("echo".to_owned()),
        reasoning_parser: ParserChoice::Named("blink".to_owned()),
        ..server
    }
}

/// A tool parser that takes all text for the argument `text` of one call.
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

/// A reasoning parser that takes the first character for a thought.
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
