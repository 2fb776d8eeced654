//! Optional calls, constrained to the schemas of strict tools.

use super::{
    outputs::CALLS,
    tests::{parsers, plan, request},
    *,
};
use crate::api::StructuredOutput;
use crate::grammar::tests::{accepts, store};

/// Formats in which only a call begins as a call does, and whose arguments are JSON.
const HELD: [&str; 8] = [
    "hermes",
    "mistral",
    "deepseek_v3",
    "deepseek_v31",
    "granite",
    "phi4_mini_json",
    "kimi_k2",
    "plamo3",
];

/// Returns a request for the same tools, with `weather` strict.
fn strict(parallel_tool_calls: bool) -> TurnRequest {
    let mut request = request(ToolChoice::Auto);
    if let Some(weather) = request.chat.tools.as_mut().and_then(|tools| tools.first_mut()) {
        weather["function"]["strict"] = true.into();
    }
    TurnRequest { parallel_tool_calls, ..request }
}

fn format(parser: &str, request: TurnRequest) -> Option<StructuredOutput> {
    let (raw, style) = plan(&parsers(parser, "none"), request).unwrap();
    let format = raw.params.structured_output.map(|format| StructuredOutput::clone(&format));
    assert_eq!(style.holds_strict_calls(), format.is_some());
    format
}

fn accepted(format: &StructuredOutput, text: &str) -> bool {
    accepts(&mut store().matcher(format).unwrap(), text)
}

#[test]
fn a_strict_call_keeps_to_its_schema_wherever_it_begins() {
    for (name, text) in CALLS {
        let Some(format) = format(name, strict(true)) else {
            assert!(!HELD.contains(name), "{name}");
            continue;
        };
        assert!(HELD.contains(name), "{name}");
        let accepted = |text: &str| accepted(&format, text);
        assert!(accepted(text), "{name}");
        assert!(accepted(&format!("Well: {text}")), "{name}");
        assert!(accepted("No call, {\"name\": \"weather\"}."), "{name}");
        assert!(!accepted(&text.replace("\"Ulm\"", "5")), "{name}: the city is no number");
        assert!(!accepted(&text.replace("weather", "later")), "{name}: there is no such tool");
        assert!(!accepted(&text.replace("}", "")), "{name}: the arguments do not end");
        let free = text.replace("weather", "now").replace("\"Ulm\"", "5");
        assert!(accepted(&free), "{name}: the other tool is not strict");
    }
}

#[test]
fn calls_that_may_not_be_parallel_are_one() {
    let two = |calls: [&str; 2]| format!("[{}]", calls.join(", "));
    let call = r#"{"name": "now", "arguments": {}}"#;
    let text = format!("functools{}", two([call, call]));
    let held = |parallel| format("phi4_mini_json", strict(parallel)).unwrap();
    assert!(accepted(&held(true), &text));
    assert!(!accepted(&held(false), &text));
    let text = format!("<tool_call>\n{call}\n</tool_call>").repeat(2);
    let held = |parallel| format("hermes", strict(parallel)).unwrap();
    assert!(accepted(&held(true), &text));
    assert!(!accepted(&held(false), &text));
}

#[test]
fn calls_are_held_to_the_tools_that_are_allowed() {
    let limited = || {
        let mut limited = request(ToolChoice::Allowed);
        limited.chat.tools.as_mut().unwrap().remove(1);
        limited
    };
    for (name, text) in CALLS.iter().filter(|(name, _)| HELD.contains(name)) {
        let (raw, _) = plan(&parsers(name, "none"), limited()).unwrap();
        let format = raw.params.structured_output.unwrap();
        assert!(accepted(&format, text), "{name}");
        assert!(accepted(&format, "No call."), "{name}");
        assert!(!accepted(&format, &text.replace("weather", "now")), "{name}: it is not allowed");
    }
}

#[test]
fn nothing_is_held_without_strict_tools_or_beside_a_format() {
    assert_eq!(format("hermes", request(ToolChoice::Auto)), None);
    assert_eq!(format("hermes", request(ToolChoice::None)), None);
    let asked = crate::api::OutputFormat::JsonObject;
    let with_format = TurnRequest { format: Some(asked.clone().into()), ..strict(true) };
    let (raw, style) = plan(&parsers("hermes", "none"), with_format).unwrap();
    assert_eq!(raw.params.structured_output.unwrap().format, asked);
    assert!(!style.holds_strict_calls());
}
