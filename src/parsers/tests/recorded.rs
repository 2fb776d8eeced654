//! Outputs as vLLM's own parsers read them, which `record.py` has recorded.

use serde::Deserialize;
use serde_json::Value;

use super::{
    ReasoningStart, Registry, all_cuts, boundaries, check_broken_off, message_of, parts, pieces,
    reasoning_events, tool_events,
};

#[derive(Deserialize)]
struct Recorded {
    calls: Vec<Calls>,
    thoughts: Vec<Thoughts>,
}

#[derive(Deserialize)]
struct Calls {
    parser: String,
    text: String,
    content: String,
    /// Names and arguments.
    calls: Vec<(String, Value)>,
}

#[derive(Deserialize)]
struct Thoughts {
    parser: String,
    text: String,
    /// Whether the request turns thoughts on or off.
    thinking: Option<bool>,
    reasoning: String,
    content: String,
}

fn recorded() -> Recorded {
    serde_json::from_str(include_str!("recorded.json")).unwrap()
}

/// Returns `text` in pieces of each number of characters up to 40, and in two at every place.
fn all_pieces(text: &str) -> Vec<Vec<&str>> {
    let places = boundaries(text);
    let sizes = (2..=40).map(|size: usize| places.iter().copied().skip(size - 1).step_by(size));
    let cuts = sizes.map(|cuts| cuts.collect::<Vec<usize>>()).chain(all_cuts(text));
    cuts.map(|cuts| pieces(text, &cuts)).collect()
}

#[test]
fn calls_are_those_of_vllm() {
    let recorded = recorded().calls;
    assert!(recorded.len() > 40);
    for Calls { parser, text, content, calls } in &recorded {
        let events = tool_events(parser, &[text.as_str()]);
        let message = message_of(events.clone());
        let read = |arguments: &str| serde_json::from_str(arguments).unwrap();
        let found: Vec<(String, Value)> =
            message.calls.iter().map(|call| (call.name.clone(), read(&call.arguments))).collect();
        assert_eq!(found, *calls, "{parser}: {text}");
        assert!(message.calls.iter().all(|call| call.is_complete), "{parser}: {text}");
        // vLLM drops white space before calls.
        assert_eq!(message.content.trim(), content.trim(), "{parser}: {text}");
        for pieces in all_pieces(text) {
            assert_eq!(tool_events(parser, &pieces), events, "{parser}: {pieces:?}");
        }
        for end in boundaries(text) {
            check_broken_off(parser, &text[..end], &message);
        }
    }
}

#[test]
fn thoughts_are_those_of_vllm() {
    let recorded = recorded().thoughts;
    assert!(recorded.len() > 30);
    for Thoughts { parser, text, thinking, reasoning, content } in &recorded {
        // The template of a request with thoughts opens them.
        let prompt = (*thinking == Some(true)).then_some("<think>");
        let start = ReasoningStart { prompt, thinking: *thinking };
        let events = reasoning_events(parser, &start, &[text.as_str()]);
        let found = parts(&events);
        // vLLM drops white space after thoughts.
        assert_eq!(found.0.trim_end(), reasoning.trim_end(), "{parser}: {text}");
        assert_eq!(found.1, *content, "{parser}: {text}");
        for pieces in all_pieces(text) {
            assert_eq!(reasoning_events(parser, &start, &pieces), events, "{parser}: {pieces:?}");
        }
    }
}

/// The tags of Hunyuan's thoughts have the suffix that the prompt shows.
#[test]
fn a_prompt_shows_the_suffix_of_tags() {
    let opened = ReasoningStart { prompt: Some("a<think:6124c78e>\n"), thinking: None };
    let closed = ReasoningStart { prompt: Some("a<think:6124c78e></think:6124c78e>"), ..opened };
    let read = |start: &ReasoningStart<'_>, text: &str| {
        let events = reasoning_events("hy_v3", start, &[text]);
        for pieces in all_pieces(text) {
            assert_eq!(reasoning_events("hy_v3", start, &pieces), events, "{pieces:?}");
        }
        parts(&events)
    };
    let both = |reasoning: &str, content: &str| (reasoning.to_owned(), content.to_owned());
    let text = "so</think>\n</think:6124c78e>It is.";
    assert_eq!(read(&opened, text), both("so</think>\n", "It is."));
    assert_eq!(read(&closed, "It is."), both("", "It is."));
    for start in [opened, closed] {
        let parser = Registry::default().reasoning_parser("hy_v3").unwrap()(&start);
        let markers = parser.markers().map(|markers| (markers.begin, markers.end));
        assert_eq!(markers, Some(both("<think:6124c78e>", "</think:6124c78e>")));
    }
}
