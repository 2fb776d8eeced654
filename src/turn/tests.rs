//! Outputs of every format through the reader, whole and cut at every place.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{
    outputs::{CALLS, THOUGHTS},
    parsers::{Reasoning, TurnParsers},
    *,
};
use crate::api::{
    ChatPrompt, FinishReason, OutputDelta, OutputFormat, Prompt, RawRequest, SampledToken,
    SamplingParams, StopReason, StructuredOutput,
};
use crate::{parsers::Registry, turn::test_codec::ByteCodec};

pub(crate) fn parsers(tools: &str, reasoning: &str) -> TurnParsers {
    let registry = Registry::default();
    let reasoning = registry.reasoning_parser(reasoning).ok();
    TurnParsers {
        tools: registry.tool_parser(tools).ok(),
        reasoning: reasoning.map(|factory| Reasoning::new(factory, &ByteCodec, false)),
    }
}

pub(super) fn request(tool_choice: ToolChoice) -> TurnRequest {
    let tool = |name: &str, properties: Value| {
        let parameters = json!({"type": "object", "properties": properties});
        json!({"type": "function", "function": {"name": name, "parameters": parameters}})
    };
    let tools = vec![tool("weather", json!({"city": {"type": "string"}})), tool("now", json!({}))];
    TurnRequest {
        chat: ChatPrompt { tools: Some(tools), ..ChatPrompt::default() },
        tool_choice,
        parallel_tool_calls: true,
        format: None,
        thinking_token_budget: None,
        include_reasoning: true,
        params: SamplingParams::default(),
        max_tokens: None,
    }
}

pub(super) fn plan(
    parsers: &TurnParsers,
    request: TurnRequest,
) -> Result<(RawRequest, TurnStyle), TurnError> {
    request.plan_with(parsers, Arc::new(ByteCodec))
}

/// Returns a style with the parsers of these names and the tools `weather` and `now`.
pub(crate) fn test_style(tools: &str, reasoning: &str, tool_choice: ToolChoice) -> TurnStyle {
    style(&parsers(tools, reasoning), request(tool_choice))
}

fn style(parsers: &TurnParsers, request: TurnRequest) -> TurnStyle {
    plan(parsers, request).map(|(_, style)| style).unwrap()
}

/// Returns an output in which every byte is a token.
pub(super) fn output(text: &str, finish: Option<FinishReason>) -> OutputDelta {
    let token = |byte: u8| SampledToken { token_id: byte.into(), logprobs: None };
    let tokens = text.bytes().map(token).collect();
    OutputDelta { text: text.to_owned(), tokens, finish, ..OutputDelta::default() }
}

pub(super) fn whole(style: &TurnStyle, prompt: &str, text: &str, finish: FinishReason) -> Turn {
    let prompt: Vec<u32> = prompt.bytes().map(u32::from).collect();
    let mut reader = style.reader("id", 0, &prompt);
    let events = reader.push(&output(text, Some(finish.clone())));
    Turn::of(events, reader.finish_reason(&finish), reader.num_reasoning_tokens())
}

/// Returns the turn of the pieces of `text`, cut at each of `cuts`.
fn streamed(style: &TurnStyle, prompt: &str, text: &str, cuts: &[usize]) -> Turn {
    let prompt: Vec<u32> = prompt.bytes().map(u32::from).collect();
    let mut reader = style.reader("id", 0, &prompt);
    let (mut events, mut start) = (Vec::new(), 0);
    for &cut in cuts {
        events.extend(reader.push(&output(&text[start..cut], None)));
        start = cut;
    }
    let finish = FinishReason::Stop(None);
    events.extend(reader.push(&output(&text[start..], Some(finish.clone()))));
    Turn::of(events, reader.finish_reason(&finish), reader.num_reasoning_tokens())
}

fn call(turn: &Turn) -> Option<(&str, Value)> {
    let call = turn.tool_calls.first()?;
    Some((&call.name, serde_json::from_str(&call.arguments).unwrap()))
}

/// vLLM's further names of formats of calls, with the names in [`CALLS`].
const NAMES_OF_CALLS: [(&str, &str); 16] = [
    ("llama4_json", "llama3_json"),
    ("llama4_pythonic", "pythonic"),
    ("glm47", "glm45"),
    ("granite4", "hermes"),
    ("mimo", "qwen3_coder"),
    ("step3p5", "qwen3_coder"),
    ("step5", "qwen3_coder"),
    ("qwen3_json", "hermes"),
    ("ernie45", "hermes"),
    ("ling3", "glm45"),
    ("hunyuan_a13b", "jamba"),
    ("cohere_command4", "cohere_command3"),
    ("xlam", "json"),
    ("poolside_v1", "glm45"),
    ("hy_v4", "hy_v3"),
    ("musespark1x", "muse"),
];

/// Reads thoughts as content, so it has no row in [`THOUGHTS`].
const APPENDS_THOUGHTS: &str = "minimax_m2_append_think";

/// vLLM's further names of formats of thoughts, with the names in [`THOUGHTS`].
const NAMES_OF_THOUGHTS: [(&str, &str); 14] = [
    ("holo2", "deepseek_r1"),
    ("minimax_m2", "deepseek_r1"),
    ("nemotron_v3", "deepseek_r1"),
    ("olmo3", "deepseek_r1"),
    ("step3", "deepseek_r1"),
    ("step3p5", "deepseek_r1"),
    ("step5", "deepseek_r1"),
    ("glm47", "glm45"),
    ("mimo", "qwen3"),
    ("ling3", "qwen3"),
    ("cohere_command4", "cohere_command3"),
    ("poolside_v1", "deepseek_v3"),
    ("hy_v4", "hy_v3"),
    ("musespark1x", "muse"),
];

#[test]
fn every_parser_is_here() {
    let registry = Registry::default();
    let first = |(name, _): &(&'static str, &'static str)| *name;
    let names: Vec<&str> = CALLS.iter().chain(&NAMES_OF_CALLS).map(first).collect();
    assert_eq!(registry.tool_parser_names().collect::<Vec<_>>(), names);
    let names: Vec<&str> = THOUGHTS.iter().chain(&NAMES_OF_THOUGHTS).map(first).collect();
    let others = registry.reasoning_parser_names().filter(|name| *name != APPENDS_THOUGHTS);
    assert_eq!(others.collect::<Vec<_>>(), names);
}

#[test]
fn further_names_read_their_formats() {
    let text = |table: &[(&str, &'static str)], format: &str| {
        table.iter().find(|(name, _)| *name == format).map(|(_, text)| *text).unwrap()
    };
    for (name, format) in NAMES_OF_CALLS {
        let style = style(&parsers(name, "none"), request(ToolChoice::Auto));
        let turn = whole(&style, "", text(CALLS, format), FinishReason::Stop(None));
        assert_eq!(call(&turn), Some(("weather", json!({"city": "Ulm"}))), "{name}");
    }
    for (name, format) in NAMES_OF_THOUGHTS {
        let style = style(&parsers("none", name), request(ToolChoice::None));
        let turn = whole(&style, "", text(THOUGHTS, format), FinishReason::Stop(None));
        let parts = (turn.reasoning.as_deref(), turn.content.as_deref());
        assert_eq!(parts, (Some("hm"), Some("yes")), "{name}");
    }
}

#[test]
fn calls_of_every_format_come_through_however_they_are_cut() {
    for (name, text) in CALLS {
        let style = style(&parsers(name, "none"), request(ToolChoice::Auto));
        let turn = whole(&style, "", text, FinishReason::Stop(None));
        assert_eq!(call(&turn), Some(("weather", json!({"city": "Ulm"}))), "{name}");
        assert_eq!((turn.content.as_deref(), turn.tool_calls.len()), (None, 1), "{name}");
        assert_eq!(turn.finish_reason, "tool_calls", "{name}");
        let places: Vec<usize> = (1..text.len()).filter(|&at| text.is_char_boundary(at)).collect();
        for &place in &places {
            assert_eq!(streamed(&style, "", text, &[place]), turn, "{name} cut at {place}");
        }
        assert_eq!(streamed(&style, "", text, &places), turn, "{name} cut everywhere");
    }
}

#[test]
fn thoughts_of_every_format_come_through_however_they_are_cut() {
    for (name, text) in THOUGHTS {
        let style = style(&parsers("none", name), request(ToolChoice::None));
        let turn = whole(&style, "", text, FinishReason::Stop(None));
        let parts = (turn.reasoning.as_deref(), turn.content.as_deref());
        assert_eq!(parts, (Some("hm"), Some("yes")), "{name}");
        // The name of Gemma 4's channel is among the tokens.
        let label = if *name == "gemma4" { "thought\n".len() } else { 0 };
        assert_eq!(turn.num_reasoning_tokens, Some(label + 2), "{name}");
        for place in 1..text.len() {
            let cut = streamed(&style, "", text, &[place]);
            assert_eq!(cut, turn, "{name} cut at {place}");
        }
        let places: Vec<usize> = (1..text.len()).collect();
        assert_eq!(streamed(&style, "", text, &places), turn, "{name} cut everywhere");
    }
}

#[test]
fn readings_are_noted_where_the_model_may_call() {
    let noted = |choice: ToolChoice, text: &str, cuts: &[usize]| {
        let noted = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&noted);
        let note = Arc::new(move |has_call: bool| seen.lock().push(has_call));
        streamed(&test_style("hermes", "none", choice).noted_by(note), "", text, cuts);
        let noted = noted.lock();
        noted.clone()
    };
    let (_, call) = CALLS[0];
    assert_eq!(noted(ToolChoice::Auto, "Hello.", &[]), [false]);
    assert_eq!(noted(ToolChoice::Auto, call, &[]), [true]);
    assert_eq!(noted(ToolChoice::Auto, call, &[4, call.len()]), [false, true, false]);
    assert_eq!(noted(ToolChoice::None, call, &[]), [false; 0]);
    assert_eq!(noted(ToolChoice::Required, "[]", &[]), [false; 0]);
}

#[test]
fn thoughts_may_begin_in_the_prompt() {
    let style = style(&parsers("hermes", "qwen3"), request(ToolChoice::Auto));
    let text = "hm</think>yes";
    let turn = whole(&style, "<assistant><think>\n", text, FinishReason::Stop(None));
    assert_eq!((turn.reasoning.as_deref(), turn.content.as_deref()), (Some("hm"), Some("yes")));
    assert_eq!(turn.num_reasoning_tokens, Some(2));
    let told_not_to = "<assistant><think>\n\n</think>\n\n";
    let turn = whole(&style, told_not_to, "yes", FinishReason::Stop(None));
    assert_eq!((turn.reasoning.as_deref(), turn.content.as_deref()), (None, Some("yes")));
    assert_eq!(turn.num_reasoning_tokens, Some(0));
}

#[test]
fn thoughts_go_on_where_the_message_in_the_prompt_left_them() {
    let read = |parser: &str, prompt: &str, text: &str| {
        let mut request = request(ToolChoice::None);
        request.chat.continue_final_message = true;
        let turn =
            whole(&style(&parsers("none", parser), request), prompt, text, FinishReason::Length);
        (turn.reasoning.unwrap_or_default(), turn.content.unwrap_or_default())
    };
    let parts = |reasoning: &str, content: &str| (reasoning.to_owned(), content.to_owned());
    let long = "Let me see. ".repeat(20);
    for parser in ["qwen3", "deepseek_r1", "glm45"] {
        let within = format!("<assistant><think></think>yes<assistant><think>\n{long}");
        assert_eq!(read(parser, &within, " So</think>no"), parts(" So", "no"), "{parser}");
        let behind = format!("<assistant><think>\nhm</think>\n\n{long}");
        assert_eq!(read(parser, &behind, "So be it"), parts("", "So be it"), "{parser}");
    }
    assert_eq!(read("deepseek_r1", "<assistant>So", " be it"), parts(" be it", ""), "as ever");
    assert_eq!(read("qwen3", "<assistant>So", " be it"), parts("", " be it"), "as ever");
}

#[test]
fn hidden_thoughts_still_count() {
    let unseen = TurnRequest { include_reasoning: false, ..request(ToolChoice::None) };
    let style = style(&parsers("none", "qwen3"), unseen);
    let turn = whole(&style, "", "<think>hm</think>yes", FinishReason::Stop(None));
    assert_eq!((turn.reasoning, turn.content.as_deref()), (None, Some("yes")));
    assert_eq!(turn.num_reasoning_tokens, Some(2));
}

#[test]
fn without_a_choice_to_call_a_call_is_content() {
    let (name, text) = CALLS[0];
    let style = style(&parsers(name, "none"), request(ToolChoice::None));
    let turn = whole(&style, "", text, FinishReason::Stop(None));
    assert_eq!((turn.content.as_deref(), turn.finish_reason), (Some(text), "stop"));
    assert!(turn.tool_calls.is_empty() && style.is_plain());
}

#[test]
fn a_required_call_is_constrained_to_a_list_of_calls() {
    let (raw, style) = plan(&parsers("hermes", "none"), request(ToolChoice::Required)).unwrap();
    let Some(StructuredOutput { format: OutputFormat::JsonSchema(schema), .. }) =
        raw.params.structured_output.as_deref()
    else {
        panic!("{:?}", raw.params.structured_output)
    };
    let schema: Value = serde_json::from_str(schema).unwrap();
    assert_eq!((&schema["type"], &schema["minItems"]), (&json!("array"), &json!(1)));
    let text = r#"[{"name": "now", "parameters": {}}, {"name": "weather", "parameters": {"city": "Ulm"}}]"#;
    let turn = whole(&style, "", text, FinishReason::Stop(None));
    let names: Vec<&str> = turn.tool_calls.iter().map(|call| call.name.as_str()).collect();
    assert_eq!((names, turn.finish_reason), (vec!["now", "weather"], "tool_calls"));
    assert_ne!(turn.tool_calls[0].id, turn.tool_calls[1].id);

    let alone = TurnRequest { parallel_tool_calls: false, ..request(ToolChoice::Required) };
    let style = self::style(&parsers("hermes", "none"), alone);
    assert_eq!(whole(&style, "", text, FinishReason::Stop(None)).tool_calls.len(), 1);
}

#[test]
fn a_named_call_is_its_arguments_even_if_they_are_cut_off() {
    let named = ToolChoice::Named("weather".to_owned());
    let (raw, style) = plan(&TurnParsers::default(), request(named.clone())).unwrap();
    let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    let format = OutputFormat::JsonSchema(schema.to_string());
    assert_eq!(raw.params.structured_output.as_deref(), Some(&format.into()));
    let text = r#"{"city": "Ulm"}"#;
    let turn = whole(&style, "", text, FinishReason::Stop(None));
    assert_eq!(call(&turn), Some(("weather", json!({"city": "Ulm"}))));
    assert_eq!((turn.content, turn.finish_reason), (None, "stop"));
    for cut in 1..text.len() {
        let part = whole(&style, "", &text[..cut], FinishReason::Length);
        let arguments = part.tool_calls.first().map(|call| call.arguments.as_str());
        assert_eq!((arguments, part.finish_reason), (Some(&text[..cut]), "length"));
        assert_eq!(part.content, None);
    }

    let thoughtful = self::style(&parsers("none", "qwen3"), request(named));
    let turn =
        whole(&thoughtful, "<think>", &format!("hm</think>{text}"), FinishReason::Stop(None));
    assert_eq!(turn.reasoning.as_deref(), Some("hm"));
    assert_eq!(call(&turn), Some(("weather", json!({"city": "Ulm"}))));
}

#[test]
fn allowed_tools_are_the_only_ones_that_are_called() {
    let mut limited = request(ToolChoice::Allowed);
    limited.chat.tools.as_mut().unwrap().remove(0);
    let (raw, style) = plan(&parsers("llama3_json", "none"), limited).unwrap();
    assert_eq!(raw.params.structured_output, None, "the format cannot be held to names");
    let call = |name: &str| format!("{{\"name\": \"{name}\", \"parameters\": {{}}}}");
    let text = [call("weather"), call("now"), call("weather")].join(";");
    let turn = whole(&style, "", &text, FinishReason::Stop(None));
    let names: Vec<&str> = turn.tool_calls.iter().map(|call| call.name.as_str()).collect();
    assert_eq!((names, turn.finish_reason), (vec!["now"], "tool_calls"));
    let turn = whole(&style, "", &call("weather"), FinishReason::Stop(None));
    assert_eq!((turn.tool_calls.len(), turn.finish_reason), (0, "stop"));
}

#[test]
fn a_call_that_ends_with_the_answer_is_whole_unless_the_answer_is_cut_off() {
    let style = style(&parsers("openai", "openai_gptoss"), request(ToolChoice::Auto));
    let text = "<|channel|>commentary to=functions.weather<|message|>Ulm";
    let read = |finish: FinishReason| {
        let turn = whole(&style, "", text, finish);
        let calls: Vec<String> = turn.tool_calls.into_iter().map(|call| call.arguments).collect();
        (calls, turn.content, turn.finish_reason)
    };
    let called = (vec!["Ulm".to_owned()], None, "tool_calls");
    assert_eq!(read(FinishReason::Stop(None)), called);
    assert_eq!(read(FinishReason::Stop(Some(StopReason::Token(7)))), called);
    let cut = vec!["Ulm".to_owned()];
    assert_eq!(read(FinishReason::Length), (cut.clone(), None, "length"));
    let stop = FinishReason::Stop(Some(StopReason::String("m".to_owned())));
    assert_eq!(read(stop), (cut, None, "stop"));
}

#[test]
fn ids_are_what_the_format_wants_and_the_same_again() {
    let mistral = style(&parsers("mistral", "none"), request(ToolChoice::Auto));
    let text = r#"[TOOL_CALLS][{"name": "now", "arguments": {}}]"#;
    let id = |style: &TurnStyle, text: &str| {
        whole(style, "", text, FinishReason::Stop(None)).tool_calls.remove(0).id
    };
    assert_eq!(id(&mistral, text).len(), 9);
    assert_eq!(id(&mistral, text), id(&mistral, text));
    let (name, text) = CALLS[0];
    let hermes = style(&parsers(name, "none"), request(ToolChoice::Auto));
    assert!(id(&hermes, text).starts_with("chatcmpl-tool-"));
    let (name, text) = CALLS[12];
    let kimi = style(&parsers(name, "none"), request(ToolChoice::Auto));
    assert_eq!(id(&kimi, text), "functions.weather:0", "the model's own");
}

#[test]
fn a_parser_whose_markers_are_special_tokens_sees_them() {
    let skips = |tools: &str, reasoning: &str, choice: ToolChoice| {
        let (raw, _) = plan(&parsers(tools, reasoning), request(choice)).unwrap();
        raw.params.skip_special_tokens
    };
    assert!(!skips("openai", "none", ToolChoice::Auto));
    assert!(skips("openai", "none", ToolChoice::Required));
    assert!(!skips("openai", "openai_gptoss", ToolChoice::Required));
    assert!(skips("openai", "qwen3", ToolChoice::None));
}

#[test]
fn unsupported_turns_are_rejected() {
    let none = TurnParsers::default();
    let error = |parsers: &TurnParsers, request: TurnRequest| plan(parsers, request).err();
    let auto = request(ToolChoice::Auto);
    assert_eq!(error(&none, auto), Some(TurnError::NoToolParser));
    let bounded = || TurnRequest { thinking_token_budget: Some(3), ..request(ToolChoice::None) };
    assert_eq!(error(&none, bounded()), Some(TurnError::UnmarkedThoughts));
    let (raw, _) = plan(&parsers("none", "qwen3"), bounded()).unwrap();
    let thinking = raw.params.thinking.unwrap();
    let bytes = |text: &str| text.bytes().map(u32::from).collect::<Vec<_>>();
    assert_eq!((&thinking.begin, &thinking.end), (&bytes("<think>"), &bytes("</think>")));
    assert_eq!(thinking.budget, Some(3));
    assert!(matches!(raw.prompt, Prompt::Chat(_)));
}

#[test]
fn structure_follows_thoughts_where_there_are_some() {
    let thinking = |is_guessed: bool, choice: ToolChoice| {
        let factory = Registry::default().reasoning_parser("qwen3").unwrap();
        let reasoning = Some(Reasoning::new(factory, &ByteCodec, is_guessed));
        let (raw, _) = plan(&TurnParsers { tools: None, reasoning }, request(choice)).unwrap();
        raw.params.thinking
    };
    assert!(thinking(false, ToolChoice::Required).is_some(), "the operator knows");
    assert!(thinking(true, ToolChoice::Required).is_none(), "they may never end");
    assert!(thinking(true, ToolChoice::None).is_some());
}
