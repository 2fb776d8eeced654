//! Checks messages before a template sees them. It rejects parts that the template would silently
//! drop.

use serde_json::{Map, Value, json};

use crate::server::{http::error::ApiError, media::MediaParts};

/// Parts that hold text, and the key of the text.
const TEXT_PARTS: [(&str, &str); 5] = [
    ("text", "text"),
    ("input_text", "text"),
    ("output_text", "text"),
    ("refusal", "refusal"),
    ("thinking", "thinking"),
];

/// Returns the messages. Every content part is text, or the place of an item of `media`, where the
/// items of all messages are added.
pub(in crate::server) fn check_messages(
    messages: &[Value],
    media: &mut MediaParts<'_>,
) -> Result<Vec<Value>, ApiError> {
    if messages.is_empty() {
        let message = "Cannot apply chat template to an empty conversation. Provide at least one \
                       message.";
        return Err(ApiError::invalid("messages", message));
    }
    let checked = messages.iter().enumerate().map(|(index, message)| {
        let place = format!("body.messages.{index}");
        let Value::Object(message) = message else {
            return Err(ApiError::validation(&place, "Input should be a valid dictionary"));
        };
        check_message(&place, message, media)
    });
    checked.collect()
}

fn check_message(
    place: &str,
    message: &Map<String, Value>,
    media: &mut MediaParts<'_>,
) -> Result<Value, ApiError> {
    match message.get("role") {
        Some(Value::String(_)) => {}
        Some(_) => {
            let place = format!("{place}.role");
            return Err(ApiError::validation(&place, "Input should be a valid string"));
        }
        None => return Err(ApiError::validation(&format!("{place}.role"), "Field required")),
    }
    check_calls(place, message.get("tool_calls"))?;
    let mut checked = message.clone();
    match message.get("content") {
        None | Some(Value::Null | Value::String(_)) => {}
        Some(Value::Array(parts)) => {
            let parts = parts.iter().enumerate();
            let parts: Result<Vec<Value>, ApiError> = parts
                .map(|(part, value)| check_part(&format!("{place}.content.{part}"), value, media))
                .collect();
            checked.insert("content".to_owned(), Value::Array(parts?));
        }
        Some(_) => {
            let wanted = "Input should be a valid string or a list of parts";
            return Err(ApiError::validation(&format!("{place}.content"), wanted));
        }
    }
    Ok(Value::Object(checked))
}

/// Checks the calls of an earlier turn: the fields that templates show must be present.
fn check_calls(place: &str, calls: Option<&Value>) -> Result<(), ApiError> {
    let refuse = |place: &str, message: &str| Err(ApiError::validation(place, message));
    let place = format!("{place}.tool_calls");
    let calls = match calls {
        None | Some(Value::Null) => return Ok(()),
        Some(Value::Array(calls)) => calls,
        Some(_) => return refuse(&place, "Input should be a valid list"),
    };
    for (index, call) in calls.iter().enumerate() {
        let place = format!("{place}.{index}.function");
        let Some(Value::Object(function)) = call.get("function") else {
            return refuse(&place, "Input should be a valid dictionary");
        };
        if !function.get("name").is_some_and(Value::is_string) {
            return refuse(&format!("{place}.name"), "Input should be a valid string");
        }
        match function.get("arguments") {
            None | Some(Value::Null | Value::String(_) | Value::Object(_)) => {}
            Some(_) => {
                return refuse(&format!("{place}.arguments"), "Input should be a valid string");
            }
        }
    }
    Ok(())
}

/// Returns a text part as `{"type": "text", "text": …}`, and one of media with its kind alone.
pub(in crate::server) fn check_part(
    place: &str,
    part: &Value,
    media: &mut MediaParts<'_>,
) -> Result<Value, ApiError> {
    if let Value::String(text) = part {
        return Ok(json!({"type": "text", "text": text}));
    }
    if let Some(place) = media.read(place, part)? {
        return Ok(place);
    }
    let kind = part.get("type").and_then(Value::as_str).unwrap_or_default();
    let Some((_, key)) = TEXT_PARTS.iter().find(|(name, _)| *name == kind) else {
        let wanted = "Input should be 'text'";
        return Err(ApiError::validation(&format!("{place}.type"), wanted));
    };
    match part.get(key) {
        Some(Value::String(text)) => Ok(json!({"type": "text", "text": text})),
        _ => {
            let place = format!("{place}.{key}");
            Err(ApiError::validation(&place, "Input should be a valid string"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::media::AskedModel;

    fn check(messages: Value) -> Result<Value, Option<String>> {
        let model = AskedModel { name: "tiny", serves_text_alone: false };
        let mut media = MediaParts::new(model, None);
        let checked = check_messages(messages.as_array().unwrap(), &mut media);
        checked.map(Value::Array).map_err(|error| error.param)
    }

    fn call(arguments: Value) -> Value {
        json!({"id": "1", "function": {"name": "now", "arguments": arguments}})
    }

    #[test]
    fn text_comes_through() {
        let messages = json!([
            {"role": "system", "content": "be brief"},
            {"role": "assistant", "content": null, "tool_calls": [call(json!({}))]},
            {"role": "assistant"},
        ]);
        assert_eq!(check(messages.clone()), Ok(messages));
        let parts =
            json!([{"role": "user", "content": [{"type": "input_text", "text": "a"}, "b"]}]);
        let texts = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
        assert_eq!(check(parts), Ok(json!([{"role": "user", "content": texts}])));
    }

    #[test]
    fn everything_else_is_refused_by_place() {
        let part = |part: Value| json!([{"role": "user", "content": [part]}]);
        let calls = |calls: Value| json!([{"role": "assistant", "tool_calls": calls}]);
        let wrong = [
            (json!([]), "messages"),
            (json!(["hi"]), "body.messages.0"),
            (json!([{"content": "hi"}]), "body.messages.0.role"),
            (json!([{"role": 1}]), "body.messages.0.role"),
            (json!([{"role": "user", "content": 5}]), "body.messages.0.content"),
            (part(json!({"type": "image_url", "image_url": {"url": "x"}})), "messages"),
            (part(json!({"type": "smell"})), "body.messages.0.content.0.type"),
            (part(json!({"type": "text"})), "body.messages.0.content.0.text"),
            (part(json!(7)), "body.messages.0.content.0.type"),
            (calls(json!({})), "body.messages.0.tool_calls"),
            (calls(json!(["now"])), "body.messages.0.tool_calls.0.function"),
            (
                calls(json!([{"function": {"arguments": "{}"}}])),
                "body.messages.0.tool_calls.0.function.name",
            ),
            (calls(json!([call(json!(1))])), "body.messages.0.tool_calls.0.function.arguments"),
        ];
        for (messages, place) in wrong {
            assert_eq!(check(messages.clone()), Err(Some(place.to_owned())), "{messages}");
        }
    }
}
