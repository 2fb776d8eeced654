//! Thoughts and calls in one answer.

use super::{
    super::{MessageEvent, MessageParser, ParsedCall, ReasoningStart, Registry, ToolEvent},
    Message, all_cuts, message_parser, pieces, tools,
};

fn check(reasoning: Option<&str>, tool: Option<&str>, text: &str, expected: &Message) {
    let whole = Message::parse(message_parser(reasoning, tool), text);
    assert_eq!(whole, *expected, "{text}");
    for cuts in all_cuts(text) {
        let mut parser = message_parser(reasoning, tool);
        let mut message = Message::default();
        for piece in pieces(text, &cuts) {
            message.extend(parser.push(piece));
        }
        message.extend(parser.finish());
        assert_eq!(message, whole, "{text}");
    }
}

fn message(reasoning: &str, content: &str, calls: &[(&str, &str)]) -> Message {
    let call = |(name, arguments): &(&str, &str)| ParsedCall {
        id: None,
        name: (*name).to_owned(),
        arguments: (*arguments).to_owned(),
        is_complete: true,
    };
    Message {
        reasoning: reasoning.to_owned(),
        content: content.to_owned(),
        calls: calls.iter().map(call).collect(),
    }
}

#[test]
fn calls_are_only_found_outside_thoughts() {
    let call = "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>";
    let now = [("now", "{}")];
    let text = format!("I'd {call}</think>\n\n{call}");
    check(Some("deepseek_r1"), Some("hermes"), &text, &message(&format!("I'd {call}"), "", &now));
    check(Some("qwen3"), Some("hermes"), &format!("hm{call}"), &message("hm", "", &now));
    check(None, Some("hermes"), &format!("hm{call}"), &message("", "hm", &now));
    check(
        Some("deepseek_r1"),
        None,
        &text,
        &message(&format!("I'd {call}"), &format!("\n\n{call}"), &[]),
    );
    check(None, None, &text, &message("", &text, &[]));
}

#[test]
fn harmony_calls_pass_through_the_thoughts() {
    let text = "<|channel|>analysis<|message|>Need f.<|end|><|start|>assistant<|channel|>commentary\
                <|message|>I look.<|end|><|start|>assistant to=functions.now<|channel|>commentary \
                json<|message|>{}<|call|>";
    let expected = message("Need f.", "I look.", &[("now", "{}")]);
    check(Some("openai_gptoss"), Some("openai"), text, &expected);
}

#[test]
fn calls_of_muse_pass_through_the_thoughts() {
    let call = "<|message|><atem:function_calls>\n<atem:invoke name=\"now\">\n</atem:invoke>\n\
                </atem:function_calls>";
    let text = format!(
        " to=self<|message|>Need f.<|eom|>to=commentary<|message|>I look to=x<|eom|>\
         to=now{call} to=user<|message|>No {call}<|eot|>"
    );
    // A header within a message ends it, so the second call is in thoughts.
    let expected = message(
        "Need f.<atem:function_calls>\n<atem:invoke name=\"now\">\n</atem:invoke>\n\
         </atem:function_calls>",
        "I look to=xNo",
        &[("now", "{}")],
    );
    for (reasoning, tool) in [("muse", "muse"), ("musespark1x", "musespark1x")] {
        check(Some(reasoning), Some(tool), &text, &expected);
    }
    let echoed = " to=user<|message|>I write <atem:invoke name=\"now\"></atem:invoke>.<|eot|>";
    let content = "I write <atem:invoke name=\"now\"></atem:invoke>.";
    for name in ["muse", "muse_glimmer"] {
        check(Some(name), Some(name), echoed, &message("", content, &[]));
        check(None, Some(name), echoed, &message("", content, &[]));
    }
}

#[test]
fn white_space_of_content_before_a_call_of_muse_stays() {
    let call = "<|message|><atem:invoke name=\"now\"></atem:invoke><|eom|>";
    let closed = format!(
        " to=user<|message|>I look. \n<|eom|>\n<|start|>assistant to=now{call}\n\
         <|start|>assistant to=user<|message|>So.<|eot|>"
    );
    let open = format!(" to=user<|message|>I look.\n to=now{call}");
    for name in ["muse", "muse_glimmer"] {
        for reasoning in [None, Some(name)] {
            let now = [("now", "{}")];
            check(reasoning, Some(name), &closed, &message("", "I look. \nSo.", &now));
            check(reasoning, Some(name), &open, &message("", "I look.\n", &now));
        }
    }
}

#[test]
fn a_prompt_may_open_a_call_of_muse() {
    let text = "<atem:invoke name=\"now\"></atem:invoke><|eom|> to=user<|message|>So.<|eot|>";
    let registry = Registry::default();
    for prompt in ["<|start|>assistant to=now<|message|>", "a to=now<|message|>"] {
        let start = ReasoningStart { prompt: Some(prompt), ..ReasoningStart::default() };
        for name in ["muse", "muse_glimmer"] {
            let reasoning = registry.reasoning_parser(name).unwrap()(&start);
            let tool = registry.tool_parser(name).unwrap()(&tools());
            let parser = MessageParser::new(Some(reasoning), Some(tool));
            let expected = message("", "So.", &[("now", "{}")]);
            assert_eq!(Message::parse(parser, text), expected, "{name}: {prompt}");
        }
    }
}

#[test]
fn written_line_breaks_of_a_call_stay_as_they_are() {
    let call = "<function=weather>\n<parameter=city>\na\\nb\n</parameter>\n</function>";
    let city = [("weather", "{\"city\": \"a\\\\nb\"}")];
    let wrapped = format!("<tool_call>\n{call}\n</tool_call>");
    for call in [call, wrapped.as_str()] {
        let text = format!("so\\n</think>I\\nlook.{call}");
        check(Some("minicpmv"), Some("qwen3_coder"), &text, &message("so\n", "I\nlook.", &city));
        let text = format!("so</think>a\\{call}");
        check(Some("minicpmv"), Some("qwen3_coder"), &text, &message("so", "a\\", &city));
    }
    let text = "so</think>a</tool_call>\\nb";
    check(Some("minicpmv"), None, text, &message("so", "a</tool_call>\nb", &[]));
}

/// Harmony's thoughts may begin anywhere, also within a call of another format.
#[test]
fn a_thought_within_a_call_is_reported_behind_it() {
    let text = "[TOOL_CALLS]now{\"a\": <|channel|>analysis<|message|>Hm.<|end|>1}";
    let (reasoning, tool) = (Some("openai_gptoss"), Some("mistral"));
    check(reasoning, tool, text, &message("Hm.", "", &[("now", "{\"a\": 1}")]));
    let mut parser = message_parser(reasoning, tool);
    let mut events = parser.push(text);
    events.extend(parser.finish());
    let place = |is_it: fn(&MessageEvent) -> bool| events.iter().position(is_it);
    let end = place(|event| matches!(event, MessageEvent::Answer(ToolEvent::CallEnd { .. })));
    assert!(place(|event| matches!(event, MessageEvent::Reasoning(_))) > end, "{events:?}");
}

#[test]
fn calls_beyond_the_limit_are_left_out() {
    let call = "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>";
    let parser = message_parser(None, Some("hermes")).with_max_calls(1);
    let found = Message::parse(parser, &format!("a{call}{call}b"));
    assert_eq!(found, message("", "ab", &[("now", "{}")]));
}

#[test]
fn a_broken_call_is_one_and_stays_incomplete() {
    let call = "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>";
    let broken = "<tool_call>{\"name\": \"a\", \"arguments\": {\"x\": nope}}</tool_call>";
    let found =
        |text: &str| Message::parse(message_parser(None, Some("hermes")).with_max_calls(1), text);
    let mut first = message("", "ope}}</tool_call>", &[("a", "{\"x\": n")]);
    first.calls[0].is_complete = false;
    assert_eq!(found(&format!("{broken}{call}")), first);
    let second = message("", "ope}}</tool_call>", &[("now", "{}")]);
    assert_eq!(found(&format!("{call}{broken}{call}")), second);
}

#[test]
fn calls_that_are_not_allowed_are_left_out_and_not_counted() {
    let call = |name: &str| {
        format!("<tool_call>{{\"name\": \"{name}\", \"arguments\": {{}}}}</tool_call>")
    };
    let text = [call("later"), call("now"), call("later"), call("now")].concat();
    let mut parser = message_parser(None, Some("hermes")).with_allowed(vec!["now".to_owned()]);
    let mut events = parser.push(&text);
    events.extend(parser.finish());
    let indices = events.iter().filter_map(|event| match event {
        MessageEvent::Answer(ToolEvent::CallStart { index, .. }) => Some(*index),
        _ => None,
    });
    assert_eq!(indices.collect::<Vec<_>>(), [0, 1]);
    let mut found = Message::default();
    found.extend(events);
    assert_eq!(found, message("", "", &[("now", "{}"), ("now", "{}")]));
}

#[test]
fn a_parser_reports_the_needs_of_its_parts() {
    assert!(message_parser(Some("qwen3"), Some("mistral")).needs_special_tokens());
    assert!(message_parser(Some("mistral"), Some("json")).needs_special_tokens());
    assert!(!message_parser(Some("qwen3"), Some("json")).needs_special_tokens());
    assert!(!message_parser(None, None).needs_special_tokens());
    assert!(message_parser(Some("deepseek_r1"), None).starts_in_reasoning());
}
