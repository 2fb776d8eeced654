//! Blocks and the messages they become.

use serde_json::{Value, json};

use super::Conversation;
use crate::server::media::{AskedModel, MediaParts};

fn text_model() -> MediaParts<'static> {
    MediaParts::new(AskedModel { name: "tiny", serves_text_alone: false }, None)
}

fn read(system: Value, messages: Value) -> Result<Conversation, String> {
    let system = Some(&system).filter(|system| !system.is_null());
    let messages = messages.as_array().unwrap();
    Conversation::read(system, messages, &mut text_model()).map_err(|error| error.param.unwrap())
}

/// Returns the chat messages for `messages`.
fn chat(messages: Value) -> Value {
    Value::from(read(Value::Null, messages).unwrap().into_messages())
}

#[test]
fn text_comes_through() {
    let told = json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]);
    assert_eq!(chat(told.clone()), told);
    let text = |text: &str| json!({"type": "text", "text": text, "cache_control": null});
    let one = json!([{"role": "user", "content": [text("a")]}]);
    assert_eq!(chat(one), json!([{"role": "user", "content": "a"}]));
    let two = json!([{"role": "user", "content": [text("a"), text("b")]}]);
    let parts = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
    assert_eq!(chat(two), json!([{"role": "user", "content": parts}]));
    let none = json!([{"role": "user", "content": []}]);
    assert_eq!(chat(none), json!([{"role": "user", "content": ""}]));
}

#[test]
fn the_system_prompt_goes_first() {
    let user = || json!([{"role": "user", "content": "hi"}]);
    let system = |system: Value| {
        let messages = read(system, user()).unwrap().into_messages();
        assert_eq!(messages[1..], user().as_array().unwrap()[..]);
        messages[0].clone()
    };
    assert_eq!(system(json!("be brief")), json!({"role": "system", "content": "be brief"}));
    let blocks = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
    assert_eq!(system(blocks.clone()), json!({"role": "system", "content": blocks}));
    let attribution = json!({"type": "text", "text": "x-anthropic-billing-header: cch=1a2b3;"});
    let behind = json!([attribution, {"type": "text", "text": "a"}]);
    assert_eq!(system(behind), json!({"role": "system", "content": "a"}));
    let alone = read(json!([attribution]), user()).unwrap();
    assert_eq!(alone.into_messages().len(), 1, "no system's message is left");
    assert_eq!(read(Value::Null, user()).unwrap().into_messages().len(), 1);
}

/// vLLM 0.33: `AnthropicServingMessages._convert_system_message`, and the roles of
/// `AnthropicMessage`, which Claude Code sends.
#[test]
fn system_messages_become_one_for_templates_that_reject_others() {
    let messages = json!([
        {"role": "ctx", "content": "a"},
        {"role": "system", "content": "c"},
        {"role": "msg", "content": "d"},
        {"role": "assistant", "content": "e"},
        {"role": "system", "content": [{"type": "text", "text": "f"}]},
    ]);
    let part = |text: &str| json!({"type": "text", "text": text});
    let conversation = read(json!("b"), messages).unwrap();
    assert!(!conversation.goes_on());
    let one = Value::from(conversation.with_one_system().into_messages());
    let expected = json!([
        {"role": "system", "content": [part("b"), part("c"), part("f")]},
        {"role": "user", "content": [part("a"), part("d")]},
        {"role": "assistant", "content": "e"},
    ]);
    assert_eq!(one, expected);
    let plain = json!([{"role": "user", "content": "a"}]);
    let same = read(Value::Null, plain.clone()).unwrap().with_one_system();
    assert_eq!(Value::from(same.into_messages()), plain);
}

#[test]
fn neighbours_of_one_role_are_one_message() {
    let messages = json!([
        {"role": "user", "content": "a"},
        {"role": "user", "content": [{"type": "text", "text": "b"}]},
        {"role": "assistant", "content": "c"},
    ]);
    let parts = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
    let merged = json!([{"role": "user", "content": parts}, {"role": "assistant", "content": "c"}]);
    assert_eq!(chat(messages), merged);
}

#[test]
fn calls_and_results_are_distinguished() {
    let call = |id: &str| json!({"type": "tool_use", "id": id, "name": "f", "input": {"x": 1}});
    let results = json!([
        {"type": "tool_result", "tool_use_id": "1", "content": "sunny"},
        {"type": "tool_result", "tool_use_id": "2", "is_error": true,
         "content": [{"type": "text", "text": "no such city"}]},
        {"type": "tool_result", "tool_use_id": "3"},
        {"type": "text", "text": "well?"},
    ]);
    let messages = json!([
        {"role": "user", "content": "weather?"},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "hm", "signature": "x"},
            {"type": "redacted_thinking", "data": "x"},
            {"type": "text", "text": "I look."}, call("1"), call("2"),
        ]},
        {"role": "user", "content": results},
    ]);
    let function = json!({"name": "f", "arguments": {"x": 1}});
    let made = |id: &str| json!({"id": id, "type": "function", "function": function});
    let error =
        json!([{"type": "text", "text": "Error:"}, {"type": "text", "text": "no such city"}]);
    let expected = json!([
        {"role": "user", "content": "weather?"},
        {"role": "assistant", "content": "I look.", "reasoning": "hm",
         "tool_calls": [made("1"), made("2")]},
        {"role": "tool", "content": "sunny", "tool_call_id": "1"},
        {"role": "tool", "content": error, "tool_call_id": "2"},
        {"role": "tool", "content": "", "tool_call_id": "3"},
        {"role": "user", "content": "well?"},
    ]);
    assert_eq!(chat(messages), expected);
}

#[test]
fn only_an_assistants_text_is_continued() {
    let goes_on = |last: Value| {
        let messages = json!([{"role": "user", "content": "a"}, last]);
        read(Value::Null, messages).map(|conversation| conversation.goes_on())
    };
    let text = json!({"type": "text", "text": "b"});
    let call = json!({"type": "tool_use", "id": "1", "name": "f", "input": {}});
    assert_eq!(goes_on(json!({"role": "assistant", "content": "b"})), Ok(true));
    assert_eq!(goes_on(json!({"role": "assistant", "content": [text]})), Ok(true));
    assert_eq!(goes_on(json!({"role": "user", "content": "b"})), Ok(false));
    let wrong = Err("messages".to_owned());
    assert_eq!(goes_on(json!({"role": "assistant", "content": [text, call]})), wrong);
    assert_eq!(goes_on(json!({"role": "assistant", "content": []})), wrong);
}

#[test]
fn everything_else_is_refused_by_place() {
    let user = |content: Value| json!([{"role": "user", "content": content}]);
    let assistant = |block: Value| json!([{"role": "assistant", "content": [block]}]);
    let result = |content: Value| {
        user(json!([{"type": "tool_result", "tool_use_id": "1", "content": content}]))
    };
    let call = json!({"type": "tool_use", "id": "1", "name": "f", "input": {}});
    let wrong = [
        (json!([]), ""),
        (json!(["a"]), ".0"),
        (json!([{"content": "a"}]), ".0.role"),
        (json!([{"role": "tool", "content": "a"}]), ".0.role"),
        (json!([{"role": "user"}]), ".0.content"),
        (user(json!(5)), ".0.content"),
        (user(json!(["a"])), ".0.content.0"),
        (user(json!([{"text": "a"}])), ".0.content.0.type"),
        (user(json!([{"type": "text"}])), ".0.content.0.text"),
        (user(json!([{"type": "image", "source": {}}])), ".0.content.0"),
        (user(json!([{"type": "text", "text": "a"}, {"type": "document"}])), ".0.content.1"),
        (user(json!([call])), ".0.content.0"),
        (user(json!([{"type": "tool_result", "content": "a"}])), ".0.content.0.tool_use_id"),
        (result(json!([{"type": "image"}])), ".0.content.0.content.0"),
        (result(json!(1)), ".0.content.0.content"),
        (assistant(json!({"type": "tool_result", "tool_use_id": "1"})), ".0.content.0"),
        (assistant(json!({"type": "tool_use", "id": "1", "name": "f"})), ".0.content.0.input"),
        (assistant(json!({"type": "server_tool_use"})), ".0.content.0"),
    ];
    for (messages, place) in wrong {
        let refused = read(Value::Null, messages.clone()).unwrap_err();
        assert_eq!(refused, format!("body.messages{place}"), "{messages}");
    }
    let image = json!([{"type": "image", "source": {}}]);
    assert_eq!(read(image.clone(), user(json!("a"))).unwrap_err(), "body.system.0");
    let error =
        Conversation::read(None, user(image).as_array().unwrap(), &mut text_model()).unwrap_err();
    assert!(error.message.contains("'image' blocks are not supported"), "{}", error.message);
}
