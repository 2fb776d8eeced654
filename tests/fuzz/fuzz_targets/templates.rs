//! Chat templates: every template and conversation is rendered or rejected within the fuel.
//!
//! An input is a byte of options, the template, a zero byte, and a JSON array of messages. Without
//! the array, the conversation has every kind of message.
#![no_main]

use std::{
    path::Path,
    sync::LazyLock,
    time::{Duration, Instant},
};

use libfuzzer_sys::fuzz_target;
use playhouse::text::HfTextCodec;
use playhouse_actors::ports::{ChatPrompt, TextCodec};
use serde_json::{Value, json};

/// Longest time for one input, instrumented and beside other processes.
const PATIENCE: Duration = Duration::from_secs(60);

static CODEC: LazyLock<HfTextCodec> = LazyLock::new(|| {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/demo-model"));
    HfTextCodec::load(folder).unwrap()
});

fn conversation() -> Value {
    let function = json!({"name": "weather", "arguments": "{\"city\": \"Köln\"}"});
    json!([
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [
            {"type": "text", "text": "Hi <b>"}, {"type": "text", "text": ""},
        ]},
        {"role": "assistant", "content": null, "reasoning_content": "so",
         "tool_calls": [{"id": "a", "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": "a", "content": "{\"degrees\": -1.5e3}"},
        {"role": "assistant", "content": "It is"},
    ])
}

/// Ignores panics of the template library: they reject the request and are no finding.
fn ignore_panics_of_the_library() {
    let abort = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let is_librarys = |file: &str| file.contains("/minijinja-");
        if !panic.location().is_some_and(|location| is_librarys(location.file())) {
            abort(panic);
        }
    }));
}

fuzz_target!(init: ignore_panics_of_the_library(), |data: &[u8]| {
    let Some((options, rest)) = data.split_first() else { return };
    let mut parts = rest.splitn(2, |byte| *byte == 0);
    let template = String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
    let given = parts.next().map(serde_json::from_slice::<Value>).and_then(Result::ok);
    let Value::Array(messages) = given.unwrap_or_else(conversation) else { return };
    let tool = json!({"type": "function", "function": {"name": "weather", "parameters": {}}});
    let chat = ChatPrompt {
        messages,
        tools: (options & 1 != 0).then(|| vec![tool]),
        add_generation_prompt: options & 2 != 0,
        continue_final_message: options & 4 != 0,
        // Otherwise the model's own template is used.
        chat_template: (options & 8 == 0).then_some(template),
        ..ChatPrompt::default()
    };
    let start = Instant::now();
    let _ = CODEC.render_chat(&chat);
    assert!(start.elapsed() < PATIENCE, "{:?}", start.elapsed());
});
