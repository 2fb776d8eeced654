//! Whole streams, byte by byte. Blocks have tests of their own.

use futures_util::StreamExt;
use serde_json::{Value, json};

use super::{super::partial_input::partial_input, *};
use crate::api::{Failure, OutputDelta, SampledToken, StopReason};
use crate::server::turn::{ToolChoice, outputs::for_each_cut_output, tests::test_style};

/// Returns text as it arrives, and the end of the stream.
fn outputs(texts: &[&str], finish: Option<FinishReason>) -> Vec<OutputDelta> {
    let mut deltas: Vec<OutputDelta> = texts
        .iter()
        .map(|text| OutputDelta {
            text: (*text).to_owned(),
            tokens: vec![SampledToken { token_id: 7, logprobs: None }],
            num_cached_tokens: Some(1),
            ..OutputDelta::default()
        })
        .collect();
    if let Some(last) = deltas.last_mut() {
        last.finish = finish;
    }
    deltas
}

fn style(tool_choice: ToolChoice) -> Style {
    let turn = test_style("hermes", "qwen3", tool_choice);
    Style { turn, shows_thinking: true, shows_cached: true }
}

fn choices(deltas: Vec<OutputDelta>) -> Choices {
    let deltas = futures_util::stream::iter(deltas).boxed();
    Choices::new(vec![([1, 2, 3].into(), vec![deltas])])
}

/// Returns the names and the data of the events.
async fn sent(tool_choice: ToolChoice, deltas: Vec<OutputDelta>) -> Vec<(String, Value)> {
    sent_in(style(tool_choice), deltas).await
}

async fn sent_in(style: Style, deltas: Vec<OutputDelta>) -> Vec<(String, Value)> {
    let choices = choices(deltas);
    let reader = style.turn.reader("msg_1", 0, &[1, 2, 3]);
    let message = Message::begun("msg_1".to_owned(), "demo".to_owned(), &choices);
    let request_id = RequestId("req_1".to_owned());
    let log = RequestLog::new("req_1".to_owned(), "/test", None);
    let response = respond(choices, message, reader, style, request_id, log).unwrap();
    let body = response.into_body();
    let bytes = axum::body::to_bytes(body, 100_000).await.unwrap();
    let text = String::from_utf8(bytes.to_vec()).unwrap();
    text.split_terminator("\n\n")
        .map(|event| {
            let (name, data) = event.split_once('\n').unwrap();
            let data = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
            (name.strip_prefix("event: ").unwrap().to_owned(), data)
        })
        .collect()
}

fn names(events: &[(String, Value)]) -> Vec<&str> {
    events.iter().map(|(name, _)| name.as_str()).collect()
}

#[tokio::test]
async fn a_text_has_its_events_in_order() {
    let events =
        sent(ToolChoice::None, outputs(&["He", "llo"], Some(FinishReason::Stop(None)))).await;
    let message = json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "demo", "content": [],
        "stop_reason": null, "stop_sequence": null,
        "usage": {"input_tokens": 3, "output_tokens": 0},
    });
    let usage = json!({
        "input_tokens": 2, "output_tokens": 2,
        "cache_creation_input_tokens": 0, "cache_read_input_tokens": 1,
        "output_tokens_details": {"thinking_tokens": 0},
    });
    let text = |text: &str| {
        let delta = json!({"type": "text_delta", "text": text});
        json!({"type": "content_block_delta", "index": 0, "delta": delta})
    };
    let block = json!({"type": "text", "text": ""});
    let stop = json!({"stop_reason": "end_turn", "stop_sequence": null});
    let expected = [
        json!({"type": "message_start", "message": message}),
        json!({"type": "ping"}),
        json!({"type": "content_block_start", "index": 0, "content_block": block}),
        text("He"),
        text("llo"),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": stop, "usage": usage}),
        json!({"type": "message_stop"}),
    ];
    let data: Vec<&Value> = events.iter().map(|(_, data)| data).collect();
    assert_eq!(data, expected.iter().collect::<Vec<_>>());
    for (name, data) in &events {
        assert_eq!(data["type"], **name);
    }
}

#[tokio::test]
async fn a_call_ends_in_tool_use_though_it_was_named() {
    let choice = ToolChoice::Named("now".to_owned());
    let texts = ["{\"zone\"", ": 1}"];
    let events = sent(choice, outputs(&texts, Some(FinishReason::Stop(None)))).await;
    let [_, _, (_, start), .., (_, delta), _] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(start["content_block"]["type"], "tool_use");
    assert_eq!(start["content_block"]["name"], "now");
    assert!(start["content_block"]["id"].as_str().unwrap().starts_with("toolu_"));
    assert_eq!(delta["delta"]["stop_reason"], "tool_use");
    let input: String =
        events.iter().filter_map(|(_, data)| data["delta"]["partial_json"].as_str()).collect();
    assert_eq!(input, texts.concat());
}

#[tokio::test]
async fn a_stream_ends_as_the_whole_answer_does() {
    let texts = [
        "<think>hm",
        "</think>I look.<tool_",
        "call>{\"name\": \"now\", \"argu",
        "ments\": {\"zone\": [1]}}</tool_call>",
    ];
    let deltas = || outputs(&texts, Some(FinishReason::Stop(None)));
    let mut choices = choices(deltas());
    let style = style(ToolChoice::Auto);
    let done = choices.finish().await.unwrap().remove(0);
    let reader = style.turn.reader("msg_1", 0, &[1, 2, 3]);
    let whole = Message::begun("msg_1".to_owned(), "demo".to_owned(), &choices);
    let whole = whole.completed(&style, &choices, reader, done).unwrap();
    let whole = serde_json::to_value(whole).unwrap();
    let blocks = whole["content"].as_array().unwrap();
    let kinds: Vec<&Value> = blocks.iter().map(|block| &block["type"]).collect();
    assert_eq!(kinds, ["thinking", "text", "tool_use"]);
    assert_eq!(blocks[2]["input"], json!({"zone": [1]}));
    assert_eq!(whole["stop_reason"], "tool_use");

    let events = sent(ToolChoice::Auto, deltas()).await;
    let started = events.iter().filter(|(name, _)| name == "content_block_start");
    let started: Vec<&Value> = started.map(|(_, data)| &data["content_block"]).collect();
    assert_eq!(started.iter().map(|block| &block["type"]).collect::<Vec<_>>(), kinds);
    assert_eq!(started[2]["id"], blocks[2]["id"]);
    let (_, last) = &events[events.len() - 2];
    assert_eq!(last["usage"], whole["usage"]);
    assert_eq!(last["delta"]["stop_reason"], whole["stop_reason"]);
}

async fn whole(style: &Style, deltas: Vec<OutputDelta>) -> Value {
    let mut choices = choices(deltas);
    let done = choices.finish().await.unwrap().remove(0);
    let reader = style.turn.reader("msg_1", 0, &[1, 2, 3]);
    let message = Message::begun("msg_1".to_owned(), "demo".to_owned(), &choices);
    serde_json::to_value(message.completed(style, &choices, reader, done).unwrap()).unwrap()
}

/// Returns the blocks that a client builds of `events`. An input that is cut off has its complete
/// part.
fn added_up(events: &[(String, Value)]) -> Vec<Value> {
    let (mut blocks, mut input) = (Vec::new(), String::new());
    for (name, data) in events {
        let Some(block) = blocks.last_mut() else {
            blocks.extend(data.get("content_block").cloned());
            continue;
        };
        match name.as_str() {
            "content_block_start" => blocks.push(data["content_block"].clone()),
            "content_block_delta" => {
                let delta = data["delta"].as_object().unwrap();
                let (key, piece) = delta.iter().find(|(key, _)| *key != "type").unwrap();
                let piece = piece.as_str().unwrap();
                if key == "partial_json" {
                    input.push_str(piece);
                } else {
                    block[key] = json!(block[key].as_str().unwrap().to_owned() + piece);
                }
            }
            "content_block_stop" if block["type"] == "tool_use" => {
                block["input"] = Value::Object(partial_input(&std::mem::take(&mut input)));
            }
            _ => {}
        }
    }
    blocks
}

#[test]
fn a_stream_adds_up_to_the_whole_answer_wherever_it_ends() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    for_each_cut_output(|cut| {
        let pieces = cut.pieces(30);
        let pieces: Vec<&str> = pieces.iter().map(String::as_str).chain([""]).collect();
        let deltas = || outputs(&pieces, Some(cut.finish.clone()));
        let style = Style { turn: cut.style.clone(), shows_thinking: true, shows_cached: true };
        let whole = runtime.block_on(whole(&style, deltas()));
        let events = runtime.block_on(sent_in(style, deltas()));
        assert_eq!(
            Value::from(added_up(&events)),
            whole["content"],
            "{} {:?}",
            cut.label,
            cut.text
        );
        let stop = &events[events.len() - 2].1["delta"];
        for key in ["stop_reason", "stop_sequence"] {
            assert_eq!(stop[key], whole[key], "{} {:?}", cut.label, cut.text);
        }
    });
}

#[tokio::test]
async fn the_stop_sequence_is_reported() {
    let stopped = FinishReason::Stop(Some(StopReason::String("END".to_owned())));
    let events = sent(ToolChoice::None, outputs(&["a"], Some(stopped))).await;
    let stop = json!({"stop_reason": "stop_sequence", "stop_sequence": "END"});
    assert_eq!(events[events.len() - 2].1["delta"], stop);
}

#[tokio::test]
async fn nothing_written_is_no_block() {
    let events = sent(ToolChoice::None, outputs(&[""], Some(FinishReason::Length))).await;
    assert_eq!(names(&events), ["message_start", "ping", "message_delta", "message_stop"]);
    assert_eq!(events[2].1["delta"]["stop_reason"], "max_tokens");
}

#[tokio::test]
async fn a_failure_is_an_event_of_its_own() {
    let failed = FinishReason::Error(Failure::NumericalGarbage);
    for deltas in [outputs(&["a", "b"], Some(failed)), outputs(&["a", "b"], None)] {
        let events = sent(ToolChoice::None, deltas).await;
        let (name, error) = events.last().unwrap();
        assert_eq!((name.as_str(), &error["type"]), ("error", &json!("error")));
        assert_eq!(error["error"]["type"], "api_error");
        assert_eq!(error["request_id"], "req_1");
        assert!(!names(&events).contains(&"message_stop"));
    }
    let events = sent(ToolChoice::None, outputs(&["a"], Some(FinishReason::Abort))).await;
    let reason = &events[events.len() - 2].1["delta"]["stop_reason"];
    assert_eq!((names(&events).last(), reason), (Some(&"message_stop"), &json!("pause_turn")));
}
