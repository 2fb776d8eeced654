//! Answers to given outputs, whole and streamed.

use std::sync::Arc;

use futures_util::StreamExt;
use serde_json::{Value, json};

use super::{protocol::Style, response::ChatCompletion, stream::ChatChunks};
use crate::api::{FinishReason, OutputDelta, SampledToken};
use crate::server::generate::{
    answer::Head, choices::Choices, chunks::ChunkFormat, token_names::TokenNames,
    usage::UsageReports,
};
use crate::turn::{
    ToolChoice, outputs::for_each_cut_output, test_codec::ByteCodec, tests::test_style,
};

fn style(tools: &str, reasoning: &str, choice: ToolChoice) -> Style {
    Style {
        role: "assistant".to_owned(),
        echoed: String::new(),
        turn: test_style(tools, reasoning, choice),
        num_logprobs: None,
        prompt_logprobs: false,
        prompt_ids: false,
        prompt_text: None,
        token_ids: false,
        metrics: false,
        names: TokenNames::new(Arc::new(ByteCodec), false),
    }
}

/// Returns one choice that streams `pieces`, a byte a token, after a prompt of two tokens.
fn choices(pieces: &[&str], finish: FinishReason) -> Choices {
    let token = |byte: u8| SampledToken { token_id: byte.into(), logprobs: None };
    let delta = |text: &&str| OutputDelta {
        text: (*text).to_owned(),
        tokens: text.bytes().map(token).collect(),
        ..OutputDelta::default()
    };
    let mut deltas: Vec<OutputDelta> = pieces.iter().map(delta).collect();
    deltas.push(OutputDelta { finish: Some(finish), ..OutputDelta::default() });
    Choices::new(vec![([1, 2].into(), vec![futures_util::stream::iter(deltas).boxed()])])
}

async fn whole(style: &Style, pieces: &[&str], finish: FinishReason) -> Value {
    let mut choices = choices(pieces, finish);
    let finished = choices.finish().await.unwrap();
    let head = Head::new("id".to_owned(), "chat.completion", "tiny".to_owned(), 1);
    let usage = choices.usage(false);
    serde_json::to_value(ChatCompletion::new(head, style, &choices, finished, usage)).unwrap()
}

/// Returns the deltas of all chunks, the last finish reason and the usage.
async fn streamed(
    style: Style,
    pieces: &[&str],
    finish: FinishReason,
) -> (Vec<Value>, Value, Value) {
    let mut choices = choices(pieces, finish);
    let head = Head::new("id".to_owned(), "chat.completion.chunk", "tiny".to_owned(), 1);
    let reports = UsageReports { at_end: true, continuous: false };
    let mut chunks = ChatChunks::new(head, style, reports, &choices);
    let mut events = Vec::new();
    while let Some(news) = choices.next().await {
        events.extend(chunks.write(news.unwrap(), &choices));
    }
    let json = |event: &[u8]| -> Value {
        let event = std::str::from_utf8(event).unwrap();
        serde_json::from_str(event.strip_prefix("data: ").unwrap()).unwrap()
    };
    let events: Vec<Value> = events.iter().map(|event| json(event)).collect();
    let deltas = events.iter().map(|event| event["choices"][0]["delta"].clone()).collect();
    let ends: Vec<&Value> = events
        .iter()
        .map(|event| &event["choices"][0]["finish_reason"])
        .filter(|reason| !reason.is_null())
        .collect();
    assert_eq!(ends.len(), 1, "exactly one chunk has a finish reason");
    let usage = json(&chunks.usage(choices.usage(false), &choices));
    (deltas, ends[0].clone(), usage["usage"].clone())
}

const CALL: [&str; 5] = [
    "<think>hm</th",
    "ink>so:<tool_call>{\"name\": \"weather\", \"argum",
    "ents\": {\"ci",
    "ty\": \"U",
    "lm\"}}</tool_call>",
];

#[tokio::test]
async fn an_answer_has_thoughts_content_and_calls() {
    let style = style("hermes", "qwen3", ToolChoice::Auto);
    let body = whole(&style, &CALL, FinishReason::Stop(None)).await;
    let choice = &body["choices"][0];
    let id = choice["message"]["tool_calls"][0]["id"].clone();
    assert!(id.as_str().unwrap().starts_with("chatcmpl-tool-"));
    let function = json!({"name": "weather", "arguments": "{\"city\": \"Ulm\"}"});
    let message = json!({
        "role": "assistant",
        "content": "so:",
        "refusal": null,
        "annotations": null,
        "audio": null,
        "function_call": null,
        "tool_calls": [{"id": id, "type": "function", "function": function}],
        "reasoning": "hm",
    });
    assert_eq!((&choice["message"], &choice["finish_reason"]), (&message, &json!("tool_calls")));
    assert_eq!(body["usage"]["completion_tokens_details"], json!({"reasoning_tokens": 2}));
}

#[tokio::test]
async fn a_stream_has_the_same_content_piece_by_piece() {
    let style = style("hermes", "qwen3", ToolChoice::Auto);
    let message =
        whole(&style, &CALL, FinishReason::Stop(None)).await["choices"][0]["message"].clone();
    let (deltas, finish, usage) = streamed(style, &CALL, FinishReason::Stop(None)).await;
    assert_eq!(deltas[0], json!({"role": "assistant", "content": ""}));
    assert_eq!(deltas[1], json!({"reasoning": "hm"}));
    assert_eq!(deltas[2]["content"], "so:");
    let calls: Vec<&Value> = deltas.iter().filter_map(|d| d.get("tool_calls")?.get(0)).collect();
    let (first, rest) = calls.split_first().unwrap();
    let call = &message["tool_calls"][0];
    assert_eq!((&first["index"], &first["id"]), (&json!(0), &call["id"]));
    assert_eq!(
        (&first["type"], &first["function"]["name"]),
        (&json!("function"), &json!("weather"))
    );
    assert!(rest.iter().all(|piece| piece.get("id").is_none() && piece["index"] == 0));
    assert!(rest.len() >= 2, "arguments come as they are written: {rest:?}");
    let arguments: String =
        calls.iter().map(|piece| piece["function"]["arguments"].as_str().unwrap()).collect();
    assert_eq!(call["function"]["arguments"], arguments);
    assert_eq!(finish, "tool_calls");
    assert_eq!(usage["completion_tokens_details"], json!({"reasoning_tokens": 2}));
}

/// Returns the message that a client builds of `deltas`. Absent fields are empty.
fn added_up(deltas: &[Value]) -> Value {
    let text = |key: &str| -> String { deltas.iter().filter_map(|d| d[key].as_str()).collect() };
    let mut calls: Vec<Value> = Vec::new();
    for piece in deltas.iter().filter_map(|delta| delta["tool_calls"].as_array()).flatten() {
        let index = piece["index"].as_u64().unwrap() as usize;
        let more = piece["function"]["arguments"].as_str().unwrap();
        if index == calls.len() {
            let function = json!({"name": piece["function"]["name"], "arguments": ""});
            calls.push(json!({"id": piece["id"], "type": piece["type"], "function": function}));
        }
        assert_eq!(index + 1, calls.len(), "calls come one after the other");
        let arguments = &mut calls[index]["function"]["arguments"];
        *arguments = json!(arguments.as_str().unwrap().to_owned() + more);
    }
    json!({"content": text("content"), "reasoning": text("reasoning"), "tool_calls": calls})
}

#[test]
fn a_stream_adds_up_to_the_whole_answer_wherever_it_ends() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    for_each_cut_output(|cut| {
        let plain = style("none", "none", ToolChoice::None);
        let style = Style { turn: cut.style.clone(), ..plain };
        let pieces = cut.pieces(30);
        let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
        let body = runtime.block_on(whole(&style, &pieces, cut.finish.clone()));
        let (deltas, finish, _) = runtime.block_on(streamed(style, &pieces, cut.finish.clone()));
        let Value::Object(message) = &body["choices"][0]["message"] else { panic!("{body}") };
        let text = |key: &str| message[key].as_str().unwrap_or_default();
        let calls = message.get("tool_calls").cloned().unwrap_or(json!([]));
        let expected = json!({"content": text("content"), "reasoning": text("reasoning"), "tool_calls": calls});
        assert_eq!(added_up(&deltas), expected, "{}: {:?}", cut.label, cut.text);
        assert_eq!(finish, body["choices"][0]["finish_reason"], "{}: {:?}", cut.label, cut.text);
    });
}

#[tokio::test]
async fn content_is_null_only_beside_something_else() {
    let plain = style("none", "none", ToolChoice::None);
    let message = |body: Value| body["choices"][0]["message"].clone();
    let nothing = message(whole(&plain, &[], FinishReason::Stop(None)).await);
    assert_eq!((&nothing["content"], nothing.get("tool_calls")), (&json!(""), None));
    let thinking = style("none", "qwen3", ToolChoice::None);
    let cut_off = message(whole(&thinking, &["<think>hm"], FinishReason::Length).await);
    assert_eq!((&cut_off["content"], &cut_off["reasoning"]), (&Value::Null, &json!("hm")));
    let named = style("none", "none", ToolChoice::Named("now".to_owned()));
    let called = whole(&named, &["{}"], FinishReason::Stop(None)).await;
    assert_eq!(called["choices"][0]["finish_reason"], "stop");
    // As `assemble_chat_message_fields` of vLLM 0.33 has it.
    assert_eq!(message(called)["content"], "");
}

#[tokio::test]
async fn an_empty_chunk_is_not_sent() {
    let style = style("hermes", "none", ToolChoice::Auto);
    let (deltas, finish, _) = streamed(style, &["a<tool", "_ca", "b"], FinishReason::Length).await;
    let contents: Vec<&str> = deltas.iter().map(|d| d["content"].as_str().unwrap()).collect();
    assert_eq!(contents, ["", "a", "<tool_cab", ""]);
    assert_eq!(finish, "length");
}
