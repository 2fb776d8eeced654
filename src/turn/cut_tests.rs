//! A stream and a whole answer are equal, wherever an output ends.

use super::{
    outputs::for_each_cut_output,
    tests::{output, test_style, whole},
    *,
};
use crate::api::FinishReason;

#[test]
fn a_stream_adds_up_to_the_whole_turn_wherever_it_ends() {
    let (mut num_outputs, mut num_incomplete) = (0, 0);
    for_each_cut_output(|cut| {
        let turn = whole(&cut.style, "", &cut.text, cut.finish.clone());
        for length in [1, 7] {
            let mut reader = cut.style.reader("id", 0, &[]);
            let mut events = Vec::new();
            for piece in cut.pieces(length) {
                events.extend(reader.push(&output(&piece, None)));
            }
            events.extend(reader.push(&output("", Some(cut.finish.clone()))));
            let finish_reason = reader.finish_reason(&cut.finish);
            let broken = |event: &&TurnEvent| matches!(event, TurnEvent::ToolCallBroken { .. });
            num_incomplete += events.iter().filter(broken).count();
            let streamed = Turn::of(events, finish_reason, reader.num_reasoning_tokens());
            assert_eq!(streamed, turn, "{}: {:?}", cut.label, cut.text);
        }
        num_outputs += 1;
    });
    assert!(num_outputs > 10_000 && num_incomplete > 10_000, "{num_outputs} {num_incomplete}");
}

/// So a process that continues a stream may read the beginning in other pieces.
#[test]
fn the_events_of_a_beginning_do_not_depend_on_its_pieces() {
    for_each_cut_output(|cut| {
        let read = |length: usize| {
            let mut reader = cut.style.reader("id", 0, &[]);
            let pieces = cut.pieces(length);
            let events: Vec<_> =
                pieces.iter().flat_map(|piece| reader.push(&output(piece, None))).collect();
            Turn::of(events, "", reader.num_reasoning_tokens())
        };
        let whole = read(usize::MAX);
        for length in [1, 3] {
            assert_eq!(read(length), whole, "{}: {:?}", cut.label, cut.text);
        }
    });
}

#[test]
fn calls_that_must_be_made_are_never_text() {
    for_each_cut_output(|cut| {
        let is_forced = cut.label.starts_with("required") || cut.label.starts_with("named");
        let turn = whole(&cut.style, "", &cut.text, cut.finish.clone());
        // The text before it is thoughts, whose markers may be cut off.
        if is_forced && cut.text.contains('{') {
            assert_eq!(turn.content.unwrap_or_default(), "", "{}: {:?}", cut.label, cut.text);
        }
        if matches!(cut.finish, FinishReason::Length) {
            assert_eq!(turn.finish_reason, "length");
        }
    });
}

#[test]
fn a_call_that_breaks_is_incomplete_and_nothing_to_run() {
    let style = test_style("hermes", "none", ToolChoice::Auto);
    let text = "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": ?}}</tool_call>";
    let turn = whole(&style, "", text, FinishReason::Stop(None));
    let arguments = turn.tool_calls.first().map(|call| call.arguments.as_str());
    assert_eq!((arguments, turn.finish_reason), (Some("{\"a\": "), "stop"));
    assert_eq!(turn.content.as_deref(), Some("?}}</tool_call>"), "what comes behind it");
}

#[test]
fn a_required_call_that_is_cut_off_is_a_call_and_no_text() {
    let style = test_style("hermes", "none", ToolChoice::Required);
    let text = r#"[{"name": "weather", "parameters": {"city": "Ulm"}}, {"name": "now", "parameters": {}}]"#;
    for cut in 0..text.len() {
        let turn = whole(&style, "", &text[..cut], FinishReason::Length);
        assert_eq!(turn.finish_reason, "length", "{cut}");
        assert!(turn.content.unwrap_or_default().is_empty(), "{cut}");
        let name = turn.tool_calls.first().map(|call| call.name.as_str());
        assert_eq!(name, (cut > 18).then_some("weather"), "{cut}");
    }
}
