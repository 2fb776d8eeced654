//! Tool and reasoning parsers: for all texts of a model, no parser panics or loses text. The events
//! do not depend on how the text is cut.
//!
//! An input is a byte that picks the parser, three bytes that say where to cut, and the text.
#![no_main]

// The modules are included. A dependency on the crate would build and instrument its tensors
// without need.
#[allow(dead_code, unused_imports, unreachable_pub, reason = "not all of it is used here")]
#[path = "../../../src/parsers/mod.rs"]
mod parsers;

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use parsers::{
    Message, MessageEvent, MessageParser, NamedCallParser, ReasoningParser, ReasoningStart,
    Registry, ToolEvent, ToolParser, Tools, required_call_parser,
};
use serde::de::IgnoredAny;

/// The tools of the parsers' own tests.
static TOOLS: LazyLock<Tools> = LazyLock::new(|| {
    let tools = include_str!("../../../src/parsers/tests/tools.json");
    Tools::from_request(&serde_json::from_str::<Vec<serde_json::Value>>(tools).unwrap())
});

/// A way of reading: by the names of the registry, or by a call that a request can force.
#[derive(Clone)]
enum Reader {
    Tool(String),
    Reasoning(String, Option<bool>),
    /// Reasoning, then calls.
    Both(String, String),
    NamedCall,
    RequiredCall,
}

static READERS: LazyLock<Vec<Reader>> = LazyLock::new(|| {
    let registry = Registry::default();
    let tools = Vec::from_iter(registry.tool_parser_names().map(str::to_owned));
    let reasoning = Vec::from_iter(registry.reasoning_parser_names().map(str::to_owned));
    let mut readers = vec![Reader::NamedCall, Reader::RequiredCall];
    readers.extend(tools.iter().cloned().map(Reader::Tool));
    for name in &reasoning {
        let thinking = [None, Some(false), Some(true)];
        readers.extend(thinking.map(|thinking| Reader::Reasoning(name.clone(), thinking)));
        readers.extend(tools.iter().map(|tool| Reader::Both(name.clone(), tool.clone())));
    }
    readers
});

impl Reader {
    fn parser(&self) -> MessageParser {
        let registry = Registry::default();
        let reasoning = |name: &str, thinking| -> Box<dyn ReasoningParser> {
            let start = ReasoningStart { thinking, ..ReasoningStart::default() };
            registry.reasoning_parser(name).unwrap()(&start)
        };
        let tool = |name: &str| registry.tool_parser(name).unwrap()(&TOOLS);
        let (reasoning, tool): (_, Option<Box<dyn ToolParser>>) = match self {
            Self::Tool(name) => (None, Some(tool(name))),
            Self::Reasoning(name, thinking) => (Some(reasoning(name, *thinking)), None),
            Self::Both(name, tools) => (Some(reasoning(name, None)), Some(tool(tools))),
            Self::NamedCall => (None, Some(Box::new(NamedCallParser::new("weather")))),
            Self::RequiredCall => (None, Some(Box::new(required_call_parser()))),
        };
        MessageParser::new(reasoning, tool)
    }

    /// Returns whether the parser takes free text for arguments.
    fn is_openai(&self) -> bool {
        matches!(self, Self::Tool(name) | Self::Both(_, name) if name == "openai")
    }

    /// Returns whether the parser drops or adds text of its format. Harmony and Muse have markers
    /// around every message. Their tool parsers drop thoughts. Their reasoning parsers end a call
    /// that has no end. MiniCPM-V has markers that are dropped everywhere.
    fn changes_text(&self) -> bool {
        let has_messages = |name: &String| name.starts_with("openai") || name.starts_with("muse");
        match self {
            Self::Tool(name) => has_messages(name),
            Self::Reasoning(name, _) => has_messages(name) || name == "minicpmv",
            Self::Both(name, tool) => {
                has_messages(name) || has_messages(tool) || name == "minicpmv"
            }
            Self::NamedCall | Self::RequiredCall => false,
        }
    }
}

fn events(reader: &Reader, pieces: &[&str]) -> Vec<MessageEvent> {
    let mut parser = reader.parser();
    let mut events = Vec::new();
    for piece in pieces {
        events.extend(parser.push(piece));
    }
    events.extend(parser.finish());
    merged(events)
}

/// Joins neighbouring events that a cut separated.
fn merged(events: Vec<MessageEvent>) -> Vec<MessageEvent> {
    use MessageEvent::{Answer, Reasoning};
    use ToolEvent::{CallArguments, Content};
    let mut merged: Vec<MessageEvent> = Vec::new();
    for event in events {
        match (merged.last_mut(), &event) {
            (Some(Answer(Content(last))), Answer(Content(text)))
            | (Some(Reasoning(last)), Reasoning(text))
            | (
                Some(Answer(CallArguments { delta: last, .. })),
                Answer(CallArguments { delta: text, .. }),
            ) => last.push_str(text),
            _ => merged.push(event),
        }
    }
    merged
}

/// Asserts that calls count from 0, and that each has a start, arguments, and an end or a break. No
/// text is empty.
fn check_order(events: &[MessageEvent]) {
    let (mut num_calls, mut is_open) = (0, false);
    for event in events {
        match event {
            MessageEvent::Reasoning(text) => assert!(!is_open && !text.is_empty()),
            MessageEvent::Answer(ToolEvent::Content(text)) => assert!(!is_open && !text.is_empty()),
            MessageEvent::Answer(ToolEvent::CallStart { index, name, .. }) => {
                assert!(!is_open && *index == num_calls && !name.is_empty());
                is_open = true;
            }
            MessageEvent::Answer(ToolEvent::CallArguments { index, delta }) => {
                assert!(is_open && *index == num_calls && !delta.is_empty());
            }
            MessageEvent::Answer(
                ToolEvent::CallEnd { index } | ToolEvent::CallBroken { index },
            ) => {
                assert!(is_open && *index == num_calls);
                is_open = false;
                num_calls += 1;
            }
        }
    }
    assert!(!is_open);
}

/// Returns whether the characters of `part` all stand in `whole`, in this order.
fn is_within(part: &str, whole: &str) -> bool {
    let mut rest = whole.chars();
    part.chars().all(|c| rest.any(|other| other == c))
}

/// Asserts that a text without calls is content or thoughts, except for the markers of thoughts.
fn check_text(reader: &Reader, events: &[MessageEvent], text: &str) {
    let mut message = Message::default();
    message.extend(events.iter().cloned());
    if !reader.is_openai() {
        for call in message.calls.iter().filter(|call| call.is_complete) {
            // Only the syntax is checked, because 1e999 is JSON that no f64 holds.
            assert!(serde_json::from_str::<IgnoredAny>(&call.arguments).is_ok(), "{call:?}");
        }
    }
    if !message.calls.is_empty() {
        return;
    }
    let blank = |text: &str| text.split_whitespace().collect::<String>();
    let (mut thoughts, mut content) = (String::new(), String::new());
    for event in events {
        match event {
            MessageEvent::Reasoning(text) => thoughts.push_str(text),
            MessageEvent::Answer(ToolEvent::Content(text)) => content.push_str(text),
            MessageEvent::Answer(_) => {}
        }
    }
    let (thoughts, content, text) = (blank(&thoughts), blank(&content), blank(text));
    match reader {
        _ if reader.changes_text() => {}
        // A list of calls that is cut off does not become text.
        Reader::RequiredCall => assert!(is_within(&content, &text), "{content:?}"),
        Reader::Reasoning(..) | Reader::Both(..) => {
            // Each text keeps its own order. Text that a block held back becomes content at the
            // end.
            assert!(is_within(&thoughts, &text), "{thoughts:?}");
            assert!(is_within(&content, &text), "{content:?}");
            // At most two markers are lost.
            let lost = text.len().saturating_sub(thoughts.len() + content.len());
            assert!(lost <= 64, "{lost} bytes are lost");
        }
        _ => assert_eq!(content, text),
    }
}

fuzz_target!(|data: &[u8]| {
    let Some(([reader, cuts @ ..], text)) = data.split_first_chunk::<4>() else { return };
    let reader = &READERS[*reader as usize % READERS.len()];
    let text = String::from_utf8_lossy(text);
    let whole = events(reader, &[&text]);
    check_order(&whole);
    check_text(reader, &whole, &text);
    let mut places = cuts.map(|cut| text.floor_char_boundary(cut as usize * text.len() / 255));
    places.sort_unstable();
    let [a, b, c] = places;
    assert_eq!(events(reader, &[&text[..a], &text[a..b], &text[b..c], &text[c..]]), whole);
    let single = Vec::from_iter(text.split_inclusive(|_: char| true));
    assert_eq!(events(reader, &single), whole, "a character at a time");
});
