//! Requests as chat templates see them, and requests that are rejected.

use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::{
    api::{MediaSource, Modality, OutputFormat, Prompt, RawMedia, RawRequest, SamplingParams},
    engine::DefaultSampling,
    parsers::ConstraintError,
    turn::test_codec::ByteCodec,
    turn::tests::parsers,
};

fn plan(request: ChatRequest) -> Result<RawRequest, ChatError> {
    let defaults =
        DefaultSampling { top_k: Some(7), max_tokens: Some(9), ..DefaultSampling::default() };
    let parsers = parsers("hermes", "qwen3");
    request.plan(&parsers, Arc::new(ByteCodec), &defaults).map(|(request, _)| request)
}

fn messages(request: &RawRequest) -> &[Value] {
    match &request.prompt {
        Prompt::Chat(chat) => &chat.messages,
        prompt => panic!("{prompt:?}"),
    }
}

fn add() -> Tool {
    Tool::new("add", "Adds two numbers", json!({"type": "object"}))
}

#[test]
fn messages_have_the_form_of_chat_completions() {
    let call = ToolCall { id: "1".into(), name: "add".into(), arguments: "{}".into() };
    let picture = RawMedia {
        modality: Modality::Image,
        source: MediaSource::File([1, 2].into()),
        uuid: None,
        kwargs: serde_json::Map::new(),
    };
    let called = Message {
        content: Vec::new(),
        reasoning: Some("hm".into()),
        tool_calls: vec![call],
        ..Message::assistant("")
    };
    let request = ChatRequest::new([
        Message::system("Be brief."),
        Message::user("What is this?").with_media(picture.clone()),
        called,
        Message::tool("1", "3"),
    ]);
    let request = plan(request).unwrap();
    let function = json!({"name": "add", "arguments": "{}"});
    let expected = [
        json!({"role": "system", "content": "Be brief."}),
        json!({"role": "user", "content": [{"type": "text", "text": "What is this?"}, {"type": "image"}]}),
        json!({"role": "assistant", "content": null, "reasoning": "hm",
            "tool_calls": [{"id": "1", "type": "function", "function": function}]}),
        json!({"role": "tool", "content": "3", "tool_call_id": "1"}),
    ];
    assert_eq!(messages(&request), expected);
    assert_eq!(&*request.media, [picture]);
}

#[test]
fn the_models_sampling_applies_unless_the_program_has_its_own() {
    let asked = ChatRequest::new([Message::user("Hi")]);
    let request = plan(asked.clone()).unwrap();
    assert_eq!((request.params.top_k, request.max_tokens), (7, None));
    assert_eq!(request.max_tokens_default, Some(9));
    let params = Some(SamplingParams { top_k: 3, ..SamplingParams::default() });
    assert_eq!(plan(ChatRequest { params, ..asked }).unwrap().params.top_k, 3);
}

#[test]
fn a_forced_call_is_constrained_to_its_tool() {
    let mut asked = ChatRequest::new([Message::user("Hi")]);
    asked.tools = vec![add()];
    let format = |asked: &ChatRequest| plan(asked.clone()).unwrap().params.structured_output;
    assert_eq!(format(&asked), None, "it may call");
    asked.tool_choice = Some(ToolChoice::Named("add".to_owned()));
    let schema = OutputFormat::JsonSchema(json!({"type": "object"}).to_string());
    assert_eq!(format(&asked).as_deref(), Some(&schema.into()));
    asked.tool_choice = Some(ToolChoice::Named("subtract".to_owned()));
    let unknown = ConstraintError::UnknownTool { name: "subtract".to_owned() };
    assert_eq!(plan(asked).err(), Some(ChatError::Turn(unknown.into())));
}

#[test]
fn requests_without_a_meaning_are_rejected() {
    let asked = ChatRequest::new([Message::user("Hi")]);
    let params = Some(SamplingParams { n: 2, ..SamplingParams::default() });
    let two = ChatRequest { params, ..asked.clone() };
    assert_eq!(plan(two).err(), Some(ChatError::SeveralAnswers { n: 2 }));
    let tools = vec![Tool::new("add", "", json!([1]))];
    let wrong = ChatRequest { tools, ..asked };
    assert_eq!(plan(wrong).err(), Some(ChatError::ToolParameters { name: "add".to_owned() }));
}
