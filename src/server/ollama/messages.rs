//! Turns this API's messages into those that chat templates know.

use std::collections::VecDeque;

use serde_json::{Map, Value, json};

use crate::server::{http::error::ApiError, media::MediaParts};

const ROLES: [&str; 4] = ["system", "user", "assistant", "tool"];

/// A conversation in the form of chat completions.
#[derive(Debug, Default)]
pub(super) struct Conversation {
    pub(super) messages: Vec<Value>,
    /// The calls that have no result yet, by id and name.
    open_calls: VecDeque<(String, String)>,
    num_calls: usize,
}

impl Conversation {
    /// Reads `messages`. The content of images is added to `media`.
    ///
    /// # Errors
    /// If a message is malformed. The error names the place.
    pub(super) fn read(messages: &[Value], media: &mut MediaParts<'_>) -> Result<Self, ApiError> {
        let mut conversation = Self::default();
        for (index, message) in messages.iter().enumerate() {
            let place = format!("messages.{index}");
            let Value::Object(message) = message else {
                return Err(ApiError::validation(&place, "Input should be a valid dictionary"));
            };
            let message = conversation.message(&place, message, media)?;
            conversation.messages.push(message);
        }
        Ok(conversation)
    }

    /// Returns whether the answer continues the last message, instead of beginning one.
    pub(super) fn goes_on(&self) -> bool {
        let last = self.messages.last();
        last.is_some_and(|last| last["role"] == "assistant" && last.get("tool_calls").is_none())
    }

    fn message(
        &mut self,
        place: &str,
        message: &Map<String, Value>,
        media: &mut MediaParts<'_>,
    ) -> Result<Value, ApiError> {
        let role = text(place, message, "role")?.unwrap_or_default().to_ascii_lowercase();
        let role = role.as_str();
        if !ROLES.contains(&role) {
            let wanted = format!("Input should be one of {}", ROLES.join(", "));
            return Err(ApiError::validation(&format!("{place}.role"), wanted));
        }
        let content = text(place, message, "content")?.unwrap_or_default();
        let images = images(place, message, media)?;
        let mut written = Map::from_iter([("role".to_owned(), Value::from(role))]);
        let content = match images.is_empty() {
            true => Value::from(content),
            false => {
                let text = json!({"type": "text", "text": content});
                Value::from(images.into_iter().chain([text]).collect::<Vec<_>>())
            }
        };
        written.insert("content".to_owned(), content);
        if let Some(thinking) = text(place, message, "thinking")?.filter(|text| !text.is_empty()) {
            written.insert("reasoning".to_owned(), thinking.into());
        }
        if role == "assistant" {
            self.open_calls.clear();
            let calls = self.calls(place, message)?;
            if !calls.is_empty() {
                written.insert("tool_calls".to_owned(), calls.into());
            }
        }
        if role == "tool" {
            let name = text(place, message, "tool_name")?.or(text(place, message, "name")?);
            let id = text(place, message, "tool_call_id")?;
            if let Some((id, name)) = self.answered(id, name) {
                written.insert("tool_call_id".to_owned(), id.into());
                written.insert("name".to_owned(), name.into());
            }
        }
        Ok(Value::Object(written))
    }

    fn calls(&mut self, place: &str, message: &Map<String, Value>) -> Result<Vec<Value>, ApiError> {
        let place = format!("{place}.tool_calls");
        let calls = match message.get("tool_calls") {
            None | Some(Value::Null) => return Ok(Vec::new()),
            Some(Value::Array(calls)) => calls,
            Some(_) => return Err(ApiError::validation(&place, "Input should be a valid list")),
        };
        let mut written = Vec::with_capacity(calls.len());
        for (index, call) in calls.iter().enumerate() {
            let place = format!("{place}.{index}.function");
            let Some(Value::Object(function)) = call.get("function") else {
                return Err(ApiError::validation(&place, "Input should be a valid dictionary"));
            };
            let Some(name) = text(&place, function, "name")? else {
                return Err(ApiError::validation(&format!("{place}.name"), "Field required"));
            };
            let arguments = match function.get("arguments") {
                None | Some(Value::Null) => json!({}),
                Some(arguments @ Value::Object(_)) => arguments.clone(),
                Some(_) => {
                    let place = format!("{place}.arguments");
                    return Err(ApiError::validation(&place, "Input should be a valid dictionary"));
                }
            };
            let given = call.get("id").and_then(Value::as_str).filter(|id| !id.is_empty());
            // Some templates show ids of exactly nine characters.
            let id = given.map_or_else(|| format!("call{:05}", self.num_calls), str::to_owned);
            self.num_calls += 1;
            self.open_calls.push_back((id.clone(), name.to_owned()));
            let function = json!({"name": name, "arguments": arguments});
            written.push(json!({"id": id, "type": "function", "function": function}));
        }
        Ok(written)
    }

    /// Returns id and name of the call that a result answers: the one that it names, else the first
    /// without a result.
    fn answered(&mut self, id: Option<&str>, name: Option<&str>) -> Option<(String, String)> {
        let is_it = |(open_id, open_name): &(String, String)| match (id, name) {
            (Some(id), _) => id == open_id,
            (None, Some(name)) => name == open_name,
            (None, None) => true,
        };
        match self.open_calls.iter().position(is_it) {
            Some(index) => self.open_calls.remove(index),
            None => {
                let name = name.unwrap_or_default().to_owned();
                id.map(|id| (id.to_owned(), name))
            }
        }
    }
}

/// Returns the parts for the images of a message or a prompt.
pub(super) fn images(
    place: &str,
    fields: &Map<String, Value>,
    media: &mut MediaParts<'_>,
) -> Result<Vec<Value>, ApiError> {
    let place = format!("{place}.images");
    let images = match fields.get("images") {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(images)) => images,
        Some(_) => return Err(ApiError::validation(&place, "Input should be a valid list")),
    };
    let image = |(index, image): (usize, &Value)| match image {
        Value::String(base64) => media.image_of_base64("image", base64),
        _ => {
            let place = format!("{place}.{index}");
            Err(ApiError::validation(&place, "Input should be a valid string"))
        }
    };
    images.iter().enumerate().map(image).collect()
}

/// Returns an optional field that is a string.
fn text<'a>(
    place: &str,
    fields: &'a Map<String, Value>,
    field: &str,
) -> Result<Option<&'a str>, ApiError> {
    match fields.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => {
            let place = format!("{place}.{field}");
            Err(ApiError::validation(&place, "Input should be a valid string"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::media::AskedModel;

    fn read(messages: Value) -> Result<Conversation, String> {
        let model = AskedModel { name: "tiny", serves_text_alone: false };
        let mut media = MediaParts::new(model, None);
        let read = Conversation::read(messages.as_array().unwrap(), &mut media);
        read.map_err(|error| error.param.unwrap())
    }

    fn call(name: &str) -> Value {
        json!({"function": {"name": name, "arguments": {"city": "Oslo"}}})
    }

    #[test]
    fn results_find_their_calls() {
        let read = read(json!([
            {"role": "user", "content": "?"},
            {"role": "assistant", "content": "", "thinking": "hm", "tool_calls": [
                call("now"), call("weather"),
            ]},
            {"role": "tool", "content": "rain", "tool_name": "weather"},
            {"role": "tool", "content": "noon"},
        ]))
        .unwrap();
        let [_, asked, rain, noon] = read.messages.as_slice() else { panic!("{read:?}") };
        assert_eq!(asked["reasoning"], "hm");
        assert_eq!(asked["tool_calls"][1]["function"]["arguments"]["city"], "Oslo");
        assert_eq!(rain["tool_call_id"], asked["tool_calls"][1]["id"]);
        assert_eq!(
            (&noon["tool_call_id"], &noon["name"]),
            (&asked["tool_calls"][0]["id"], &json!("now"))
        );
        assert!(!read.goes_on());
    }

    #[test]
    fn an_open_answer_is_continued() {
        let user = json!({"role": "user", "content": "Hi"});
        assert!(!read(json!([user])).unwrap().goes_on());
        let capital = json!({"role": "Assistant", "content": "Hel"});
        assert!(read(json!([user, capital])).unwrap().goes_on());
        let begun = json!({"role": "assistant", "content": "Hello"});
        assert!(read(json!([user, begun])).unwrap().goes_on());
        let called = json!({"role": "assistant", "tool_calls": [call("now")]});
        assert!(!read(json!([user, called])).unwrap().goes_on());
    }

    #[test]
    fn a_wrong_field_is_named() {
        let calls = |calls| json!([{"role": "assistant", "tool_calls": calls}]);
        let wrong = [
            (json!([7]), "messages.0"),
            (json!([{"content": "a"}]), "messages.0.role"),
            (json!([{"role": "robot"}]), "messages.0.role"),
            (json!([{"role": "user", "content": ["a"]}]), "messages.0.content"),
            (json!([{"role": "user", "images": "a"}]), "messages.0.images"),
            (json!([{"role": "user", "images": [7]}]), "messages.0.images.0"),
            (json!([{"role": "user", "images": ["aGk="]}]), "messages"),
            (calls(json!({})), "messages.0.tool_calls"),
            (calls(json!([{}])), "messages.0.tool_calls.0.function"),
            (calls(json!([{"function": {}}])), "messages.0.tool_calls.0.function.name"),
            (
                calls(json!([{"function": {"name": "a", "arguments": "{}"}}])),
                "messages.0.tool_calls.0.function.arguments",
            ),
        ];
        for (messages, place) in wrong {
            assert_eq!(read(messages.clone()).err().as_deref(), Some(place), "{messages}");
        }
    }
}
