//! Streams of blocks, and their equality with answers in one piece.

use serde_json::{Map, Value, json};

use super::{super::content::content, *};

fn written(news: Vec<TurnEvent>, shows_thinking: bool) -> Vec<Value> {
    let mut blocks = BlockEvents::new(shows_thinking);
    let mut events = Vec::new();
    for event in news {
        blocks.push(event, &mut events);
    }
    blocks.stop(&mut events);
    events.iter().map(|event| serde_json::to_value(event).unwrap()).collect()
}

fn start(index: usize) -> TurnEvent {
    let (id, name) = (format!("chatcmpl-tool-{index}"), "now".to_owned());
    TurnEvent::ToolCallStart { index, id, name }
}

fn arguments(index: usize, delta: &str) -> TurnEvent {
    TurnEvent::ToolCallArguments { index, delta: delta.to_owned() }
}

/// Returns a turn with every kind of event.
fn turn() -> Vec<TurnEvent> {
    let thought = |text: &str| TurnEvent::Reasoning(text.to_owned());
    let said = |text: &str| TurnEvent::Content(text.to_owned());
    vec![
        thought("h"),
        thought("m"),
        said("I "),
        said("look."),
        start(0),
        arguments(0, "{\"zone\":"),
        arguments(0, " 1}"),
        TurnEvent::ToolCallEnd { index: 0 },
        start(1),
        arguments(1, "{}"),
        TurnEvent::ToolCallEnd { index: 1 },
        said("Well."),
    ]
}

/// Returns the message that a client builds of a stream.
fn accumulated(events: &[Value]) -> Value {
    let mut blocks: Vec<Value> = Vec::new();
    let mut inputs: Map<String, Value> = Map::new();
    for event in events {
        let index = event["index"].as_u64().unwrap();
        match event["type"].as_str().unwrap() {
            "content_block_start" => {
                assert_eq!(index, blocks.len() as u64);
                blocks.push(event["content_block"].clone());
            }
            "content_block_delta" => {
                assert_eq!(index + 1, blocks.len() as u64);
                let block = blocks.last_mut().unwrap();
                let delta = event["delta"].as_object().unwrap();
                for (key, piece) in delta.iter().filter(|(key, _)| *key != "type") {
                    let piece = piece.as_str().unwrap();
                    if key == "partial_json" {
                        let input = inputs.entry(index.to_string()).or_insert(json!(""));
                        *input = json!(input.as_str().unwrap().to_owned() + piece);
                        let whole = serde_json::from_str(input.as_str().unwrap());
                        block["input"] = whole.unwrap_or_default();
                    } else {
                        block[key] = json!(block[key].as_str().unwrap().to_owned() + piece);
                    }
                }
            }
            kind => assert_eq!(kind, "content_block_stop"),
        }
    }
    Value::from(blocks)
}

#[test]
fn every_block_starts_grows_and_stops() {
    let events: Vec<(u64, String)> = written(turn(), true)
        .iter()
        .map(|event| {
            let what = match event["type"].as_str().unwrap() {
                "content_block_start" => format!("start {}", event["content_block"]["type"]),
                "content_block_delta" => event["delta"]["type"].to_string(),
                _ => "stop".to_owned(),
            };
            (event["index"].as_u64().unwrap(), what.replace('"', ""))
        })
        .collect();
    let expected = [
        (0, "start thinking"),
        (0, "thinking_delta"),
        (0, "thinking_delta"),
        (0, "signature_delta"),
        (0, "stop"),
        (1, "start text"),
        (1, "text_delta"),
        (1, "text_delta"),
        (1, "stop"),
        (2, "start tool_use"),
        (2, "input_json_delta"),
        (2, "input_json_delta"),
        (2, "stop"),
        (3, "start tool_use"),
        (3, "input_json_delta"),
        (3, "stop"),
        (4, "start text"),
        (4, "text_delta"),
        (4, "stop"),
    ];
    assert_eq!(events, expected.map(|(index, what)| (index, what.to_owned())));
}

#[test]
fn the_events_of_a_call_are_as_the_api_has_them() {
    let call = vec![start(0), arguments(0, "{}"), TurnEvent::ToolCallEnd { index: 0 }];
    let block = json!({"type": "tool_use", "id": "toolu_0", "name": "now", "input": {}});
    let delta = json!({"type": "input_json_delta", "partial_json": "{}"});
    let expected = [
        json!({"type": "content_block_start", "index": 0, "content_block": block}),
        json!({"type": "content_block_delta", "index": 0, "delta": delta}),
        json!({"type": "content_block_stop", "index": 0}),
    ];
    assert_eq!(written(call, true), expected);
}

#[test]
fn a_stream_adds_up_to_the_whole_answer() {
    for shows_thinking in [true, false] {
        let whole = serde_json::to_value(content(turn(), shows_thinking)).unwrap();
        assert_eq!(accumulated(&written(turn(), shows_thinking)), whole);
    }
}

#[test]
fn thoughts_that_are_not_shown_are_signed() {
    let kinds: Vec<Value> = written(vec![TurnEvent::Reasoning("hm".to_owned())], false)
        .iter()
        .map(|event| event["delta"]["type"].clone())
        .collect();
    assert_eq!(kinds, [Value::Null, json!("signature_delta"), Value::Null]);
}

#[test]
fn a_call_that_breaks_stops() {
    let broken = TurnEvent::ToolCallBroken { index: 0 };
    let events = written(vec![start(0), arguments(0, "{\"a"), broken], true);
    assert_eq!(events.len(), 3);
    assert_eq!(events[2], json!({"type": "content_block_stop", "index": 0}));
    assert!(written(vec![], true).is_empty());
}
