//! Constraints on calls of a model that decides itself when to call. The structural tag, in
//! xgrammar's notation, leaves text free until one of a format's markers begins a call. Then it
//! limits the call to the tools and their schemas.

use serde_json::{Value, json};

use super::schema::Tools;

/// A format's frame of one call or several.
#[derive(Debug)]
pub(super) struct Frame {
    /// The marker of calls. Wherever it appears, this frame must follow.
    pub(super) trigger: &'static str,
    /// The text between the trigger and the first call.
    pub(super) open: &'static str,
    /// The text between calls. `None` if a frame holds only one call.
    pub(super) separator: Option<&'static str>,
    /// The text that ends the frame.
    pub(super) close: &'static str,
}

impl Frame {
    fn tag(&self, calls: &[Value], parallel_tool_calls: bool) -> Value {
        let is_single = self.separator.is_none() || !parallel_tool_calls;
        let begin = [self.trigger, self.open].concat();
        json!({
            "type": "tag",
            "begin": begin,
            "content": {
                "type": "tags_with_separator",
                "tags": calls,
                "separator": self.separator.unwrap_or_default(),
                "at_least_one": true,
                "stop_after_first": is_single,
            },
            "end": self.close,
        })
    }
}

/// Returns the structural tag for calls in these frames. `call` writes one as a tag, from the
/// tool's name and the format of its arguments. With `bare`, calls that begin with it may also come
/// without a frame.
///
/// Returns `None` if a call cannot be written. Also returns `None` if nothing limits calls: no tool
/// is strict, and other tools may be called.
pub(super) fn structural_tag(
    frames: &[Frame],
    bare: Option<&'static str>,
    tools: &Tools,
    parallel_tool_calls: bool,
    call: impl Fn(&str, Value) -> Option<Value>,
) -> Option<Value> {
    if frames.is_empty() || !(tools.has_strict() || tools.is_limited()) {
        return None;
    }
    let calls: Option<Vec<Value>> =
        tools.names().map(|name| call(name, arguments(tools, name))).collect();
    let calls = calls?;
    let mut triggers: Vec<&str> = frames.iter().map(|frame| frame.trigger).collect();
    let mut tags: Vec<Value> =
        frames.iter().map(|frame| frame.tag(&calls, parallel_tool_calls)).collect();
    if let Some(trigger) = bare {
        triggers.push(trigger);
        tags.extend(calls);
    }
    Some(json!({"type": "structural_tag", "format": {
        "type": "triggered_tags",
        "triggers": triggers,
        "tags": tags,
        "at_least_one": false,
        "stop_after_first": !parallel_tool_calls,
    }}))
}

/// Returns the format of a tool's arguments: its schema if it is strict, otherwise any object.
fn arguments(tools: &Tools, name: &str) -> Value {
    let schema = match tools.parameters(name).filter(|_| tools.is_strict(name)) {
        Some(parameters) => super::constraint::or_no_parameters(parameters),
        None => json!({"type": "object"}),
    };
    json!({"type": "json_schema", "json_schema": schema})
}

/// Returns a call as an object `{"name": …, "arguments": …}`.
pub(super) fn object_call(name: &str, arguments: Value) -> Option<Value> {
    let begin = format!("{{\"name\": {}, \"arguments\": ", Value::from(name));
    Some(json!({"type": "tag", "begin": begin, "content": arguments, "end": "}"}))
}

/// Returns whether a name may stand without quotes.
pub(super) fn is_plain(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    !name.is_empty() && name.chars().all(is_plain)
}
