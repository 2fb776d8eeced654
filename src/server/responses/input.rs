//! Turns `input` into the items of a conversation. It rejects parts that no template could show,
//! and names the place.

use std::{collections::BTreeSet, sync::Arc};

use serde_json::{Map, Value};

use super::{
    ids::{ItemIds, response_of},
    items::{
        CustomToolCall, FunctionCall, FunctionCallOutput, Item, ItemStatus, Items, Message, Output,
        Part, Reasoning, Role,
    },
    shared::SharedBytes,
};
use crate::server::{http::error::ApiError, media::MediaParts};

/// Reads `input`.
pub(super) struct InputReader<'a> {
    /// Checks the parts of media.
    pub(super) media: &'a MediaParts<'a>,
    /// Gives ids to items without one.
    pub(super) ids: &'a mut ItemIds,
    /// Finds items of earlier responses.
    pub(super) find: &'a dyn Fn(&str) -> Option<Arc<Item>>,
    /// Counts the bytes of the items that were found.
    pub(super) shared: &'a mut SharedBytes,
}

type Fields = Map<String, Value>;

/// Returns the ids of the responses whose items `input` refers to, each once.
pub(super) fn references(input: Option<&Value>) -> impl Iterator<Item = String> {
    let items = input.and_then(Value::as_array).into_iter().flatten();
    let is_reference = |item: &&Value| {
        let kind = item.get("type").and_then(Value::as_str);
        kind.map_or(item.get("role").is_none(), |kind| kind == "item_reference")
    };
    let ids = items.filter(is_reference).filter_map(|item| item.get("id").and_then(Value::as_str));
    ids.filter_map(response_of).collect::<BTreeSet<_>>().into_iter()
}

/// Returns whether the last item is a message of the assistant that was cut off. The answer goes on
/// with it.
pub(super) fn ends_cut_off(input: Option<&Value>) -> bool {
    let Some(last) = input.and_then(Value::as_array).and_then(|items| items.last()) else {
        return false;
    };
    let field = |key: &str| last.get(key).and_then(Value::as_str);
    let is_message = matches!(field("type"), None | Some("message"));
    let is_empty = |content: &Value| content.as_array().is_some_and(Vec::is_empty);
    is_message
        && field("role") == Some("assistant")
        && matches!(field("status"), Some("incomplete" | "in_progress"))
        && last.get("content").is_some_and(|content| !is_empty(content))
}

impl InputReader<'_> {
    /// Returns the items. A text alone becomes a user's message.
    ///
    /// # Errors
    /// If there are none, or one that this server does not accept.
    pub(super) fn read(&mut self, input: Option<&Value>) -> Result<Items, ApiError> {
        match input {
            None | Some(Value::Null) => Err(ApiError::validation("body.input", "Field required")),
            Some(Value::String(text)) => {
                let content = vec![Part::InputText { text: text.clone() }];
                Ok(vec![Arc::new(self.message(None, Role::User, content))])
            }
            Some(Value::Array(items)) if items.is_empty() => {
                Err(ApiError::invalid("input", "`input` must hold at least one item"))
            }
            Some(Value::Array(items)) => {
                let places = items.iter().enumerate();
                places.map(|(i, item)| self.item(&format!("body.input.{i}"), item)).collect()
            }
            Some(_) => Err(ApiError::validation(
                "body.input",
                "Input should be a valid string or a list of items",
            )),
        }
    }

    fn item(&mut self, place: &str, item: &Value) -> Result<Arc<Item>, ApiError> {
        let Value::Object(item) = item else {
            return Err(ApiError::validation(place, "Input should be a valid dictionary"));
        };
        let kind = match item.get("type") {
            Some(Value::String(kind)) => kind.as_str(),
            None | Some(Value::Null) if item.contains_key("role") => "message",
            None | Some(Value::Null) if item.contains_key("id") => "item_reference",
            _ => return Err(wrong(place, "type", "Input should be a valid string")),
        };
        match kind {
            "message" => self.read_message(place, item).map(Arc::new),
            "reasoning" => self.reasoning(place, item).map(Arc::new),
            "function_call" => self.function_call(place, item).map(Arc::new),
            "function_call_output" => {
                let output = self.call_output(place, item, "fco")?;
                Ok(Arc::new(Item::FunctionCallOutput(output)))
            }
            "custom_tool_call" => self.custom_call(place, item).map(Arc::new),
            "custom_tool_call_output" => {
                let output = self.call_output(place, item, "ctco")?;
                Ok(Arc::new(Item::CustomToolCallOutput(output)))
            }
            "item_reference" => self.reference(place, item),
            _ => {
                let message = format!(
                    "items of type '{kind}' are not supported by this server (at {place}): only \
                     message, reasoning, function_call, function_call_output, custom_tool_call, \
                     custom_tool_call_output and item_reference"
                );
                Err(ApiError::invalid("input", message))
            }
        }
    }

    fn read_message(&mut self, place: &str, item: &Fields) -> Result<Item, ApiError> {
        let role = match text(place, item, "role")? {
            "user" => Role::User,
            "system" => Role::System,
            "developer" => Role::Developer,
            "assistant" => Role::Assistant,
            _ => {
                let wanted = "Input should be 'user', 'system', 'developer' or 'assistant'";
                return Err(wrong(place, "role", wanted));
            }
        };
        let content = match item.get("content") {
            Some(Value::String(text)) if role == Role::Assistant => {
                vec![Part::output_text(text.clone())]
            }
            Some(Value::String(text)) => vec![Part::InputText { text: text.clone() }],
            Some(Value::Array(parts)) => self.parts(&format!("{place}.content"), parts)?,
            None => return Err(wrong(place, "content", "Field required")),
            Some(_) => {
                let wanted = "Input should be a valid string or a list of parts";
                return Err(wrong(place, "content", wanted));
            }
        };
        Ok(self.message(given_id(item), role, content))
    }

    fn message(&mut self, id: Option<String>, role: Role, content: Vec<Part>) -> Item {
        let id = id.unwrap_or_else(|| self.ids.next("msg"));
        Item::Message(Message { id, status: ItemStatus::Completed, role, content })
    }

    fn reasoning(&mut self, place: &str, item: &Fields) -> Result<Item, ApiError> {
        if item.get("encrypted_content").is_some_and(|value| !value.is_null()) {
            let message = format!(
                "encrypted thoughts are not supported by this server (at {place}): send them as \
                 `content`"
            );
            return Err(ApiError::invalid("input", message));
        }
        Ok(Item::Reasoning(Reasoning {
            id: given_id(item).unwrap_or_else(|| self.ids.next("rs")),
            status: ItemStatus::Completed,
            summary: self.some_parts(place, item, "summary")?,
            content: self.some_parts(place, item, "content")?,
            encrypted_content: None,
        }))
    }

    fn function_call(&mut self, place: &str, item: &Fields) -> Result<Item, ApiError> {
        let is_cut = item.get("status").is_some_and(|status| status == "incomplete");
        Ok(Item::FunctionCall(FunctionCall {
            id: given_id(item).unwrap_or_else(|| self.ids.next("fc")),
            status: if is_cut { ItemStatus::Incomplete } else { ItemStatus::Completed },
            call_id: text(place, item, "call_id")?.to_owned(),
            namespace: match item.get("namespace") {
                None | Some(Value::Null) => None,
                Some(_) => Some(text(place, item, "namespace")?.to_owned()),
            },
            name: text(place, item, "name")?.to_owned(),
            arguments: text(place, item, "arguments")?.to_owned(),
        }))
    }

    fn custom_call(&mut self, place: &str, item: &Fields) -> Result<Item, ApiError> {
        Ok(Item::CustomToolCall(CustomToolCall {
            id: given_id(item).unwrap_or_else(|| self.ids.next("ctc")),
            call_id: text(place, item, "call_id")?.to_owned(),
            name: text(place, item, "name")?.to_owned(),
            input: text(place, item, "input")?.to_owned(),
        }))
    }

    /// Returns the output of a call. `kind` is that of its id.
    fn call_output(
        &mut self,
        place: &str,
        item: &Fields,
        kind: &str,
    ) -> Result<FunctionCallOutput, ApiError> {
        let output = match item.get("output") {
            Some(Value::String(text)) => Output::Text(text.clone()),
            Some(Value::Array(parts)) => {
                Output::Parts(self.parts(&format!("{place}.output"), parts)?)
            }
            None => return Err(wrong(place, "output", "Field required")),
            Some(_) => {
                let wanted = "Input should be a valid string or a list of parts";
                return Err(wrong(place, "output", wanted));
            }
        };
        Ok(FunctionCallOutput {
            id: given_id(item).unwrap_or_else(|| self.ids.next(kind)),
            status: ItemStatus::Completed,
            call_id: text(place, item, "call_id")?.to_owned(),
            output,
        })
    }

    fn reference(&mut self, place: &str, item: &Fields) -> Result<Arc<Item>, ApiError> {
        let id = text(place, item, "id")?;
        let found = (self.find)(id).ok_or_else(|| {
            let message = format!(
                "Item with id '{id}' not found. Items of responses that were not stored cannot be \
                 referred to."
            );
            ApiError::missing("input", message)
        })?;
        self.shared.refer(&found)?;
        Ok(found)
    }

    fn some_parts(&self, place: &str, item: &Fields, key: &str) -> Result<Vec<Part>, ApiError> {
        match item.get(key) {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(Value::Array(parts)) => self.parts(&format!("{place}.{key}"), parts),
            Some(_) => Err(wrong(place, key, "Input should be a valid list")),
        }
    }

    fn parts(&self, place: &str, parts: &[Value]) -> Result<Vec<Part>, ApiError> {
        let places = parts.iter().enumerate();
        places.map(|(i, part)| self.part(&format!("{place}.{i}"), part)).collect()
    }

    fn part(&self, place: &str, part: &Value) -> Result<Part, ApiError> {
        let Value::Object(part) = part else {
            return Err(ApiError::validation(place, "Input should be a valid dictionary"));
        };
        let owned = |key| text(place, part, key).map(str::to_owned);
        match text(place, part, "type")? {
            "input_text" | "text" => Ok(Part::InputText { text: owned("text")? }),
            "output_text" => Ok(Part::output_text(owned("text")?)),
            "refusal" => Ok(Part::Refusal { refusal: owned("refusal")? }),
            "reasoning_text" => Ok(Part::ReasoningText { text: owned("text")? }),
            "summary_text" => Ok(Part::SummaryText { text: owned("text")? }),
            "input_image" if self.media.takes_images() => image(place, part),
            kind => Err(match self.media.refusal(kind) {
                Some(error) => {
                    let message = format!("{} (at {place})", error.message);
                    ApiError::invalid("input", message)
                }
                None => wrong(place, "type", "Input should be 'input_text' or 'output_text'"),
            }),
        }
    }
}

/// Returns an image. Files of a store are not supported, because there is none.
fn image(place: &str, part: &Fields) -> Result<Part, ApiError> {
    if part.get("file_id").is_some_and(|id| !id.is_null()) {
        let message = format!("`file_id` is not supported by this server (at {place})");
        return Err(ApiError::invalid("input", message));
    }
    let image_url = text(place, part, "image_url")?.to_owned();
    let detail = match part.get("detail") {
        None | Some(Value::Null) => "auto".to_owned(),
        Some(_) => text(place, part, "detail")?.to_owned(),
    };
    Ok(Part::InputImage { image_url, detail })
}

fn given_id(item: &Fields) -> Option<String> {
    let id = item.get("id").and_then(Value::as_str).filter(|id| !id.is_empty());
    id.map(str::to_owned)
}

fn text<'a>(place: &str, fields: &'a Fields, key: &str) -> Result<&'a str, ApiError> {
    match fields.get(key) {
        Some(Value::String(text)) => Ok(text),
        None => Err(wrong(place, key, "Field required")),
        Some(_) => Err(wrong(place, key, "Input should be a valid string")),
    }
}

fn wrong(place: &str, key: &str, message: &str) -> ApiError {
    ApiError::validation(&format!("{place}.{key}"), message)
}
