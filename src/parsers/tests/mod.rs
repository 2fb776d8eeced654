//! Model outputs of every format: complete, cut at every place, ended at every place, and garbage.

mod chain;
mod framed;
mod garbage;
mod incomplete;
mod named;
mod reasoning;
mod recorded;
mod tools_further;
mod tools_json;
mod tools_marked;
mod tools_tagged;

use serde_json::Value;

use super::{
    Message, MessageEvent, MessageParser, ParsedCall, ReasoningEvent, ReasoningStart, Registry,
    ToolEvent, ToolParser, Tools,
};

/// Returns the tools of every test's request.
fn tools() -> Tools {
    let tools: Vec<Value> = serde_json::from_str(include_str!("tools.json")).unwrap();
    Tools::from_request(&tools)
}

/// Returns the pieces of `text` between the characters at `cuts`.
fn pieces<'a>(text: &'a str, cuts: &[usize]) -> Vec<&'a str> {
    let bounds: Vec<usize> = [0].iter().chain(cuts).chain(&[text.len()]).copied().collect();
    bounds.windows(2).map(|pair| &text[pair[0]..pair[1]]).collect()
}

/// Returns the places where `text` can be cut.
fn boundaries(text: &str) -> Vec<usize> {
    (1..text.len()).filter(|at| text.is_char_boundary(*at)).collect()
}

/// Returns all cuts of `text` that are tried: at each place, at all of them and, if it is short, at
/// each pair.
fn all_cuts(text: &str) -> Vec<Vec<usize>> {
    let places = boundaries(text);
    let mut cuts: Vec<Vec<usize>> = places.iter().map(|at| vec![*at]).collect();
    cuts.push(places.clone());
    if places.len() <= 110 {
        for (i, first) in places.iter().enumerate() {
            cuts.extend(places[i + 1..].iter().map(|second| vec![*first, *second]));
        }
    }
    cuts
}

/// Joins neighbouring events that a cut separated.
fn merge_tool_events(events: impl IntoIterator<Item = ToolEvent>) -> Vec<ToolEvent> {
    let mut merged: Vec<ToolEvent> = Vec::new();
    for event in events {
        match (merged.last_mut(), event) {
            (Some(ToolEvent::Content(last)), ToolEvent::Content(text)) => last.push_str(&text),
            (
                Some(ToolEvent::CallArguments { index: last, delta }),
                ToolEvent::CallArguments { index, delta: text },
            ) if *last == index => {
                assert!(!text.is_empty());
                delta.push_str(&text);
            }
            (_, event) => merged.push(event),
        }
    }
    merged
}

fn merge_reasoning_events(events: impl IntoIterator<Item = ReasoningEvent>) -> Vec<ReasoningEvent> {
    let mut merged: Vec<ReasoningEvent> = Vec::new();
    for event in events {
        match (merged.last_mut(), event) {
            (Some(ReasoningEvent::Content(last)), ReasoningEvent::Content(text))
            | (Some(ReasoningEvent::Reasoning(last)), ReasoningEvent::Reasoning(text)) => {
                last.push_str(&text);
            }
            (_, event) => merged.push(event),
        }
    }
    merged
}

fn tool_parser(name: &str) -> Box<dyn ToolParser> {
    Registry::default().tool_parser(name).unwrap()(&tools())
}

fn tool_events_of(mut parser: Box<dyn ToolParser>, pieces: &[&str]) -> Vec<ToolEvent> {
    let mut events = Vec::new();
    for piece in pieces {
        events.extend(parser.push(piece));
    }
    events.extend(parser.finish());
    let events = merge_tool_events(events);
    check_order(&events);
    events
}

/// Returns the content of `text`, which the model ended.
fn stopped_message(name: &str, text: &str) -> Message {
    let mut parser = tool_parser(name);
    let mut events = parser.push(text);
    events.extend(parser.finish_stopped());
    check_order(&merge_tool_events(events.clone()));
    message_of(events)
}

fn tool_events(name: &str, pieces: &[&str]) -> Vec<ToolEvent> {
    tool_events_of(tool_parser(name), pieces)
}

/// Checks that calls count from 0, one after the other, each with a start, arguments and an end or
/// a break.
fn check_order(events: &[ToolEvent]) {
    let mut num_calls = 0;
    let mut is_open = false;
    for event in events {
        match event {
            ToolEvent::Content(text) => assert!(!is_open && !text.is_empty(), "{events:?}"),
            ToolEvent::CallStart { index, name, .. } => {
                assert!(!is_open && *index == num_calls && !name.is_empty(), "{events:?}");
                is_open = true;
            }
            ToolEvent::CallArguments { index, delta } => {
                assert!(is_open && *index == num_calls && !delta.is_empty(), "{events:?}");
            }
            ToolEvent::CallEnd { index } | ToolEvent::CallBroken { index } => {
                assert!(is_open && *index == num_calls, "{events:?}");
                is_open = false;
                num_calls += 1;
            }
        }
    }
    assert!(!is_open, "{events:?}");
}

fn message_of(events: Vec<ToolEvent>) -> Message {
    let mut message = Message::default();
    message.extend(events.into_iter().map(MessageEvent::Answer));
    message
}

/// Returns whether a tool parser reads messages with headers, and drops them and thoughts.
fn unwraps_messages(parser: &str) -> bool {
    parser == "openai" || parser.starts_with("muse")
}

fn is_json(text: &str) -> bool {
    serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok()
}

/// A complete output and its parts: content, and names with arguments.
type Whole<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)]);

/// Checks a parser against a table. Each output is cut at every place, and ended at every place.
fn check_tools(parser: &str, table: &[Whole<'_>]) {
    for (text, content, calls) in table {
        let events = tool_events(parser, &[text]);
        let message = message_of(events.clone());
        let found: Vec<(&str, &str)> =
            message.calls.iter().map(|call| (&*call.name, &*call.arguments)).collect();
        assert_eq!(found, *calls, "{parser}: {text}");
        assert_eq!(message.content, *content, "{parser}: {text}");
        let is_sound = |call: &ParsedCall| !call.is_complete || is_json(&call.arguments);
        assert!(message.calls.iter().all(is_sound), "{parser}: {text}");
        for cuts in all_cuts(text) {
            let pieces = pieces(text, &cuts);
            assert_eq!(tool_events(parser, &pieces), events, "{parser}: {pieces:?}");
        }
        for end in boundaries(text) {
            check_broken_off(parser, &text[..end], &message);
        }
    }
}

/// Checks that `text`, the beginning of an output with `whole` in it, has its calls. The last may
/// be incomplete.
fn check_broken_off(parser: &str, text: &str, whole: &Message) {
    let message = message_of(tool_events(parser, &[text]));
    let num_calls = message.calls.len();
    assert!(num_calls <= whole.calls.len(), "{parser}: {text}");
    for (index, (call, all)) in std::iter::zip(&message.calls, &whole.calls).enumerate() {
        if call.is_complete || index + 1 < num_calls {
            assert_eq!(call, all, "{parser}: {text}");
        }
        assert_eq!((&call.name, &call.id), (&all.name, &all.id), "{parser}: {text}");
        assert!(all.arguments.starts_with(&call.arguments), "{parser}: {text}");
    }
    if num_calls == 0 && !unwraps_messages(parser) {
        assert_eq!(message.content.trim(), text.trim(), "{parser}");
    }
}

/// Checks outputs without a call: all of each is content.
fn check_no_calls(parser: &str, texts: &[&str]) {
    let table: Vec<Whole<'_>> =
        texts.iter().map(|text| (*text, *text, &[] as &[(&str, &str)])).collect();
    check_tools(parser, &table);
}

fn reasoning_events(
    parser: &str,
    start: &ReasoningStart<'_>,
    pieces: &[&str],
) -> Vec<ReasoningEvent> {
    let mut parser = Registry::default().reasoning_parser(parser).unwrap()(start);
    let mut events = Vec::new();
    for piece in pieces {
        events.extend(parser.push(piece));
    }
    events.extend(parser.finish());
    merge_reasoning_events(events)
}

/// Returns thoughts and content of `events`.
fn parts(events: &[ReasoningEvent]) -> (String, String) {
    let mut parts = (String::new(), String::new());
    for event in events {
        match event {
            ReasoningEvent::Reasoning(text) => parts.0.push_str(text),
            ReasoningEvent::Content(text) => parts.1.push_str(text),
        }
    }
    parts
}

fn message_parser(reasoning: Option<&str>, tool: Option<&str>) -> MessageParser {
    let registry = Registry::default();
    let start = ReasoningStart::default();
    MessageParser::new(
        reasoning.map(|name| registry.reasoning_parser(name).unwrap()(&start)),
        tool.map(|name| registry.tool_parser(name).unwrap()(&tools())),
    )
}
