//! `input` and the chat messages it becomes.

use serde_json::{Value, json, to_value};

use crate::server::{
    http::error::ApiError,
    media::{AskedModel, MediaParts},
    responses::{
        ids::ItemIds,
        input::{InputReader, ends_cut_off},
        items::{self, Items},
        messages::messages,
        shared::SharedBytes,
    },
};

const TINY: AskedModel<'static> = AskedModel { name: "tiny", serves_text_alone: false };

/// Most bytes of stored items that a conversation may show.
const SHARED_MAX: usize = 4_000;

fn text_model() -> MediaParts<'static> {
    MediaParts::new(TINY, None)
}

fn read(input: &Value) -> Result<Items, ApiError> {
    let media = text_model();
    let mut ids = ItemIds::new("resp_r");
    let find = |id: &str| {
        let mut earlier = ItemIds::new("resp_e");
        let shared = &mut shared();
        let mut reader = InputReader { media: &media, ids: &mut earlier, find: &|_| None, shared };
        let items = reader.read(Some(&json!("as I said"))).unwrap();
        items.into_iter().find(|item| item.id() == id)
    };
    let shared = &mut shared();
    InputReader { media: &media, ids: &mut ids, find: &find, shared }.read(Some(input))
}

fn shared() -> SharedBytes {
    SharedBytes::new(&[], SHARED_MAX).unwrap()
}

fn chat(input: &Value) -> Value {
    let items = read(input).unwrap();
    messages(None, &items, &mut text_model()).unwrap().into()
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn call(call_id: &str, arguments: &str) -> Value {
    json!({"type": "function_call", "call_id": call_id, "name": "now", "arguments": arguments})
}

fn result(call_id: &str, output: &Value) -> Value {
    json!({"type": "function_call_output", "call_id": call_id, "output": output})
}

fn tool_call(id: &str, arguments: &str) -> Value {
    let function = json!({"name": "now", "arguments": arguments});
    json!({"id": id, "type": "function", "function": function})
}

/// The model sees a custom tool as a function with the argument `input`.
#[test]
fn a_call_of_a_custom_tool_has_its_text_as_an_argument() {
    let call =
        json!({"type": "custom_tool_call", "call_id": "c", "name": "now", "input": "a \"b\""});
    let output = json!({"type": "custom_tool_call_output", "call_id": "c", "output": "done"});
    let turn = json!({
        "role": "assistant", "content": null,
        "tool_calls": [tool_call("c", r#"{"input":"a \"b\""}"#)],
    });
    let result = json!({"role": "tool", "tool_call_id": "c", "content": "done"});
    assert_eq!(chat(&json!([user("go"), call, output])), json!([user("go"), turn, result]));
    let items = read(&json!([user("go"), call, output])).unwrap();
    assert_eq!(to_value(&*items[1]).unwrap()["id"], "ctc_r_1");
    assert_eq!(to_value(&*items[2]).unwrap()["type"], "custom_tool_call_output");
}

#[test]
fn a_call_of_a_namespace_has_the_name_that_the_model_saw() {
    let mut spaced = call("c", "{}");
    spaced["namespace"] = json!("crm");
    let messages = chat(&json!([spaced]));
    assert_eq!(messages[0]["tool_calls"][0]["function"]["name"], "crm__now");
    spaced["namespace"] = json!(1);
    assert!(read(&json!([spaced])).is_err());
}

#[test]
fn a_text_is_a_users_message() {
    assert_eq!(chat(&json!("hi")), json!([user("hi")]));
    let items = read(&json!("hi")).unwrap();
    assert_eq!(
        messages(Some("be brief"), &items, &mut text_model()).unwrap(),
        [json!({"role": "system", "content": "be brief"}), user("hi"),]
    );
}

#[test]
fn messages_keep_their_roles_and_parts() {
    let typed = |kind: &str, text: &str| json!({"type": kind, "text": text});
    let text = |text: &str| typed("text", text);
    let two = [typed("input_text", "a"), typed("input_text", "b")];
    let said = [typed("output_text", "d"), json!({"type": "refusal", "refusal": "no"})];
    let input = json!([
        {"role": "system", "content": "s"},
        {"type": "message", "role": "developer", "content": [typed("input_text", "dev")]},
        {"role": "user", "content": two},
        {"role": "assistant", "content": "c"},
        {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant",
         "content": said},
        {"type": "message", "role": "user", "content": "e"},
    ]);
    let wanted = json!([
        {"role": "system", "content": "s"},
        {"role": "developer", "content": "dev"},
        {"role": "user", "content": [text("a"), text("b")]},
        {"role": "assistant", "content": "c"},
        {"role": "assistant", "content": [text("d"), text("no")]},
        user("e"),
    ]);
    assert_eq!(chat(&input), wanted);
}

#[test]
fn what_the_assistant_does_in_a_row_is_one_message() {
    let input = json!([
        user("what time is it?"),
        {"type": "reasoning", "id": "rs_1", "summary": [],
         "content": [{"type": "reasoning_text", "text": "look"}], "encrypted_content": null},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "wait"}]},
        call("a", "{}"),
        call("b", "{\"zone\": 1}"),
        result("a", &json!("noon")),
        result("b", &json!([{"type": "input_text", "text": "one"}])),
        {"role": "assistant", "content": "It is noon."},
    ]);
    let wanted = json!([
        user("what time is it?"),
        {
            "role": "assistant",
            "reasoning": "look",
            "content": "wait",
            "tool_calls": [tool_call("a", "{}"), tool_call("b", "{\"zone\": 1}")],
        },
        {"role": "tool", "tool_call_id": "a", "content": "noon"},
        {"role": "tool", "tool_call_id": "b", "content": "one"},
        {"role": "assistant", "content": "It is noon."},
    ]);
    assert_eq!(chat(&input), wanted);
}

#[test]
fn thoughts_may_come_as_a_summary_and_begin_a_message() {
    let thought = |text: &str| json!({"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": text}]});
    let input = json!([thought("a"), {"role": "assistant", "content": "b"}, thought("c")]);
    let wanted = json!([
        {"role": "assistant", "reasoning": "a", "content": "b"},
        {"role": "assistant", "reasoning": "c", "content": null},
    ]);
    assert_eq!(chat(&input), wanted);
}

#[test]
fn a_call_that_was_cut_off_is_not_shown() {
    let mut cut = call("a", "{\"zo");
    cut["status"] = json!("incomplete");
    assert_eq!(chat(&json!([user("time?"), cut])), json!([user("time?")]));
}

#[test]
fn an_output_needs_its_call() {
    let items = read(&json!([call("a", "{}"), result("b", &json!("noon"))])).unwrap();
    let error = messages(None, &items, &mut text_model()).unwrap_err();
    assert_eq!(error.param.as_deref(), Some("input"));
    assert!(error.message.contains("call_id b"), "{error:?}");
}

#[test]
fn an_item_may_be_referred_to() {
    for reference in [json!({"type": "item_reference", "id": "msg_e_0"}), json!({"id": "msg_e_0"})]
    {
        assert_eq!(chat(&json!([reference])), json!([user("as I said")]));
    }
    let error = read(&json!([{"type": "item_reference", "id": "msg_x_0"}])).unwrap_err();
    assert_eq!((error.status.as_u16(), error.param.as_deref()), (404, Some("input")));
    assert!(error.message.contains("msg_x_0"), "{error:?}");
}

#[test]
fn items_referred_to_count_each_time_also_those_without_text() {
    let reference = json!({"id": "msg_e_0"});
    let most = SHARED_MAX / items::VALUE_BYTES;
    let error = read(&Value::from(vec![reference; most])).unwrap_err();
    assert_eq!((error.status.as_u16(), error.param.as_deref()), (413, Some("input")));
    assert!(error.message.contains(&SHARED_MAX.to_string()), "{error:?}");

    let mut ids = ItemIds::new("resp_p");
    let parts = vec![json!({"type": "input_text", "text": ""}); most];
    let input = json!([{"role": "user", "content": parts}]);
    let (find, shared) = (|_: &str| None, &mut shared());
    let media = text_model();
    let mut reader = InputReader { media: &media, ids: &mut ids, find: &find, shared };
    let many_parts = reader.read(Some(&input)).unwrap();
    assert_eq!(shared.total(), 0, "what the request brings is counted as its body");
    assert_eq!(shared.refer(&many_parts[0]).unwrap_err().status, 413);
}

#[test]
fn items_get_ids_and_keep_their_own() {
    let items = read(&json!([user("a"), {"role": "user", "id": "mine", "content": "b"}])).unwrap();
    let ids: Vec<&str> = items.iter().map(|item| item.id()).collect();
    assert_eq!(ids, ["msg_r_0", "mine"]);
    assert_eq!(
        to_value(&items[0]).unwrap(),
        json!({
            "type": "message",
            "id": "msg_r_0",
            "status": "completed",
            "role": "user",
            "content": [{"type": "input_text", "text": "a"}],
        })
    );
}

#[test]
fn a_message_that_was_cut_off_goes_on_if_it_is_the_last() {
    let parts = json!([{"type": "output_text", "text": "It is"}]);
    let said = |status: &str| json!({"role": "assistant", "status": status, "content": parts});
    let goes_on = |input: Value| ends_cut_off(Some(&input));
    assert!(goes_on(json!([user("now?"), said("incomplete")])));
    assert!(goes_on(json!([said("in_progress")])));
    assert!(!goes_on(json!([said("completed")])));
    assert!(!goes_on(json!([said("incomplete"), user("and?")])));
    let mut other = call("a", "{");
    other["status"] = json!("incomplete");
    let nothing = json!({"role": "assistant", "status": "incomplete", "content": []});
    for input in [json!([other]), json!([nothing]), json!([]), json!("hi"), json!(null)] {
        assert!(!goes_on(input));
    }
}

#[test]
fn everything_else_is_refused_by_place() {
    let part = |part: Value| json!([{"role": "user", "content": [part]}]);
    let call_without = |key: &str| {
        let mut call = call("a", "{}");
        call.as_object_mut().unwrap().remove(key);
        json!([call])
    };
    let wrong = [
        (json!(null), "body.input"),
        (json!(7), "body.input"),
        (json!([]), "input"),
        (json!(["hi"]), "body.input.0"),
        (json!([{"type": 1}]), "body.input.0.type"),
        (json!([{}]), "body.input.0.type"),
        (json!([{"type": "web_search_call", "id": "ws"}]), "input"),
        (json!([{"role": "tool", "content": "x"}]), "body.input.0.role"),
        (json!([{"role": "user"}]), "body.input.0.content"),
        (json!([{"role": "user", "content": 5}]), "body.input.0.content"),
        (part(json!("hi")), "body.input.0.content.0"),
        (part(json!({"text": "hi"})), "body.input.0.content.0.type"),
        (part(json!({"type": "smell"})), "body.input.0.content.0.type"),
        (part(json!({"type": "input_text"})), "body.input.0.content.0.text"),
        (part(json!({"type": "input_image", "image_url": "x"})), "input"),
        (part(json!({"type": "input_file", "file_id": "x"})), "input"),
        (call_without("call_id"), "body.input.0.call_id"),
        (call_without("name"), "body.input.0.name"),
        (call_without("arguments"), "body.input.0.arguments"),
        (json!([result("a", &json!(1))]), "body.input.0.output"),
        (json!([{"type": "reasoning", "summary": 1}]), "body.input.0.summary"),
        (json!([{"type": "reasoning", "summary": [], "encrypted_content": "x"}]), "input"),
    ];
    for (input, place) in wrong {
        let error = read(&input).unwrap_err();
        assert_eq!((error.status.as_u16(), error.param.as_deref()), (400, Some(place)), "{input}");
    }
    let image = read(&part(json!({"type": "input_image"}))).unwrap_err();
    assert!(image.message.contains("'input_image'"), "{image:?}");
}
