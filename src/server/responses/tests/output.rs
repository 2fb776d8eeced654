//! The events of a response, in order, and their sum.

use serde_json::{Value, json};

use crate::server::{
    responses::{
        events::{Event, Frames},
        ids::ItemIds,
        items::{Item, ItemStatus},
        output::OutputWriter,
        tool_names::ToolNames,
    },
    turn::TurnEvent,
};

fn think(text: &str) -> TurnEvent {
    TurnEvent::Reasoning(text.to_owned())
}

fn say(text: &str) -> TurnEvent {
    TurnEvent::Content(text.to_owned())
}

fn call(index: usize) -> TurnEvent {
    TurnEvent::ToolCallStart { index, id: format!("call_{index}"), name: "now".to_owned() }
}

fn arguments(index: usize, delta: &str) -> TurnEvent {
    TurnEvent::ToolCallArguments { index, delta: delta.to_owned() }
}

fn write(turn: Vec<TurnEvent>, last: ItemStatus) -> (Vec<Event>, Vec<Item>) {
    let find = json!({"type": "function", "name": "find"});
    let tools = [
        json!({"type": "custom", "name": "patch"}),
        json!({"type": "namespace", "name": "crm", "tools": [find]}),
    ];
    let mut writer = OutputWriter::new(ItemIds::new("resp_r"), ToolNames::of(&tools));
    let mut events = Vec::new();
    turn.into_iter().for_each(|event| writer.write(event, &mut events));
    let items = writer.finish(last, &mut events);
    (events, items)
}

/// Returns each event as it is sent, without its name, and the items.
fn told(turn: Vec<TurnEvent>, last: ItemStatus) -> (Vec<(String, Value)>, Value) {
    let (events, items) = write(turn, last);
    let mut frames = Frames::default();
    let read = |(number, event): (usize, &Event)| {
        let frame = frames.write(event);
        let text = std::str::from_utf8(&frame).unwrap();
        let (name, data) = text.split_once("\ndata: ").unwrap();
        let name = name.strip_prefix("event: ").unwrap().to_owned();
        let mut data: Value = serde_json::from_str(data.strip_suffix("\n\n").unwrap()).unwrap();
        let fields = data.as_object_mut().unwrap();
        assert_eq!(fields.remove("type"), Some(json!(name)));
        assert_eq!(fields.remove("sequence_number"), Some(json!(number)));
        (name, data)
    };
    let told = events.iter().enumerate().map(read).collect();
    (told, serde_json::to_value(items).unwrap())
}

fn names(told: &[(String, Value)]) -> Vec<&str> {
    told.iter().map(|(name, _)| name.strip_prefix("response.").unwrap()).collect()
}

/// Returns the texts that a client sees if it only joins deltas.
fn added_up(told: &[(String, Value)]) -> Vec<String> {
    let mut texts: Vec<String> = Vec::new();
    for (name, data) in told {
        let index = data["output_index"].as_u64().unwrap() as usize;
        if name == "response.output_item.added" {
            assert_eq!(index, texts.len());
            texts.push(String::new());
        }
        if let Some(delta) = data["delta"].as_str() {
            texts[index].push_str(delta);
        }
    }
    texts
}

#[test]
fn a_message_has_events_piece_by_piece() {
    let (told, items) = told(vec![say("It is"), say(" noon.")], ItemStatus::Completed);
    let part = |text: &str| json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []});
    let message = |status: &str, content: Value| {
        json!({
            "type": "message", "id": "msg_r_0", "status": status, "role": "assistant",
            "content": content,
        })
    };
    let at = |key: &str, value: Value| {
        let mut data = json!({"item_id": "msg_r_0", "output_index": 0, "content_index": 0});
        data[key] = value;
        data
    };
    let with_logprobs = |mut data: Value| {
        data["logprobs"] = json!([]);
        data
    };
    let done = message("completed", json!([part("It is noon.")]));
    let wanted = [
        (
            "output_item.added",
            json!({"output_index": 0, "item": message("in_progress", json!([]))}),
        ),
        ("content_part.added", at("part", part(""))),
        ("output_text.delta", with_logprobs(at("delta", json!("It is")))),
        ("output_text.delta", with_logprobs(at("delta", json!(" noon.")))),
        ("output_text.done", with_logprobs(at("text", json!("It is noon.")))),
        ("content_part.done", at("part", part("It is noon."))),
        ("output_item.done", json!({"output_index": 0, "item": done})),
    ];
    let wanted = wanted.map(|(name, data)| (format!("response.{name}"), data));
    assert_eq!(told, wanted);
    assert_eq!(items, json!([done]));
}

#[test]
fn thoughts_words_and_calls_are_items_of_their_own() {
    let turn = vec![
        think("hm"),
        think("m"),
        say("Let me look."),
        call(0),
        arguments(0, "{\"zone\""),
        arguments(0, ": 1}"),
        TurnEvent::ToolCallEnd { index: 0 },
        call(1),
        arguments(1, "{}"),
        TurnEvent::ToolCallEnd { index: 1 },
    ];
    let (told, items) = told(turn, ItemStatus::Completed);
    let wanted = [
        "output_item.added",
        "content_part.added",
        "reasoning_text.delta",
        "reasoning_text.delta",
        "reasoning_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
    ];
    assert_eq!(names(&told), wanted);
    assert_eq!(added_up(&told), ["hmm", "Let me look.", "{\"zone\": 1}", "{}"]);
    let call = |index: usize, arguments: &str| {
        json!({
            "type": "function_call", "id": format!("fc_r_{}", index + 2), "status": "completed",
            "call_id": format!("call_{index}"), "name": "now", "arguments": arguments,
        })
    };
    assert_eq!(items[0]["content"], json!([{"type": "reasoning_text", "text": "hmm"}]));
    assert_eq!(items[1]["content"][0]["text"], "Let me look.");
    assert_eq!((&items[2], &items[3]), (&call(0, "{\"zone\": 1}"), &call(1, "{}")));
    let (_, done) = told.iter().find(|(name, _)| name.ends_with("arguments.done")).unwrap();
    let wanted = json!({
        "item_id": "fc_r_2", "output_index": 2, "name": "now", "arguments": "{\"zone\": 1}",
    });
    assert_eq!(done, &wanted);
}

#[test]
fn a_call_of_a_namespace_has_both_names() {
    let name = "crm__find".to_owned();
    let start = TurnEvent::ToolCallStart { index: 0, id: "call_0".to_owned(), name };
    let turn = vec![start, arguments(0, "{}"), TurnEvent::ToolCallEnd { index: 0 }];
    let (told, items) = told(turn, ItemStatus::Completed);
    assert_eq!((&items[0]["namespace"], &items[0]["name"]), (&json!("crm"), &json!("find")));
    let (_, done) = told.iter().find(|(name, _)| name.ends_with("arguments.done")).unwrap();
    assert_eq!(done["name"], "find");
}

/// The events are those of vLLM's `emit_simple_tool_call_*`.
#[test]
fn a_custom_tool_gets_plain_text() {
    let patch = |index: usize, text: &'static str| {
        let name = "patch".to_owned();
        let start = TurnEvent::ToolCallStart { index, id: format!("call_{index}"), name };
        let pieces = text.split_inclusive(' ').map(move |piece| arguments(index, piece));
        [start].into_iter().chain(pieces)
    };
    let end = |index| TurnEvent::ToolCallEnd { index };
    let turn = patch(0, r#"{"input": "a \nb"}"#).chain([end(0)]).chain(patch(1, r#"{"input": "c"#));
    let (told, items) = told(turn.collect(), ItemStatus::Incomplete);
    let wanted = [
        "output_item.added",
        "custom_tool_call_input.delta",
        "custom_tool_call_input.delta",
        "custom_tool_call_input.done",
        "output_item.done",
        "output_item.added",
        "custom_tool_call_input.delta",
        "output_item.done",
    ];
    assert_eq!(names(&told), wanted);
    assert_eq!(added_up(&told), ["a \nb", "c"]);
    assert_eq!(told[3].1, json!({"item_id": "ctc_r_0", "output_index": 0, "input": "a \nb"}));
    let call = |index: usize, input: &str| {
        json!({
            "type": "custom_tool_call", "id": format!("ctc_r_{index}"),
            "call_id": format!("call_{index}"), "name": "patch", "input": input,
        })
    };
    assert_eq!(items, json!([call(0, "a \nb"), call(1, "c")]));
}

#[test]
fn an_item_that_is_cut_off_is_incomplete() {
    for turn in [vec![think("h")], vec![say("a")], vec![call(0), arguments(0, "{\"zo")]] {
        let (told, items) = told(turn, ItemStatus::Incomplete);
        assert_eq!(items[0]["status"], "incomplete");
        assert!(told.last().unwrap().0.ends_with("output_item.done"));
        assert!(!names(&told).contains(&"function_call_arguments.done"));
    }
}

#[test]
fn a_malformed_call_stays_incomplete() {
    let broken = TurnEvent::ToolCallBroken { index: 0 };
    let turn = vec![say("a "), call(0), arguments(0, "{\"zo"), broken, say(" b")];
    let (told, items) = told(turn, ItemStatus::Completed);
    assert_eq!((items.as_array().unwrap().len(), &items[1]["status"]), (3, &json!("incomplete")));
    assert_eq!(added_up(&told), ["a ", "{\"zo", " b"]);
    assert!(!names(&told).contains(&"function_call_arguments.done"));
}

#[test]
fn a_complete_response_without_output_is_an_empty_message() {
    let (told, items) = told(Vec::new(), ItemStatus::Completed);
    assert_eq!(items[0]["content"][0]["text"], "");
    assert_eq!(names(&told).len(), 5);
    assert_eq!(write(Vec::new(), ItemStatus::Incomplete).1, []);
}
