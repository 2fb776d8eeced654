//! The sides of pairs as a body has them: texts, and contents with images, videos and sounds.

use serde_json::{Map, Value};

use crate::{
    engine::PairSide,
    server::{chat::check_part, exchange::Exchange, http::error::ApiError, media::MediaParts},
};

/// A text, or the parts of a content.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Item {
    Text(String),
    Parts(Vec<Value>),
}

/// Reads the items of the field `name`: a text, an object `{"content": […]}`, or a list of these.
pub(super) fn items(name: &str, value: Value) -> Result<Vec<Item>, ApiError> {
    let wrong = || {
        let message = "Input should be a valid string, an object with a list `content`, or a list \
                       of these";
        ApiError::validation(&format!("body.{name}"), message)
    };
    let item = |value: Value| match value {
        Value::String(text) => Ok(Item::Text(text)),
        Value::Object(mut fields) => match fields.remove("content") {
            Some(Value::Array(parts)) => Ok(Item::Parts(parts)),
            _ => Err(wrong()),
        },
        _ => Err(wrong()),
    };
    match value {
        Value::Array(list) => list.into_iter().map(item).collect(),
        value => Ok(vec![item(value)?]),
    }
}

impl Item {
    /// Returns the text of an item without media. As in vLLM, its parts are lines.
    ///
    /// # Errors
    /// The parts of another item.
    pub(super) fn into_text(self) -> Result<String, Vec<Value>> {
        let parts = match self {
            Self::Text(text) => return Ok(text),
            Self::Parts(parts) => parts,
        };
        let text = |part: &Value| match part {
            Value::String(text) => Some(text.clone()),
            part if part.get("type").and_then(Value::as_str) == Some("text") => {
                part.get("text").and_then(Value::as_str).map(str::to_owned)
            }
            _ => None,
        };
        let texts: Option<Vec<String>> = parts.iter().map(text).collect();
        match texts {
            Some(texts) if !texts.is_empty() => Ok(texts.join("\n")),
            _ => Err(parts),
        }
    }
}

/// Returns the items of the field `name` with their content. `kwargs` are settings of all images.
///
/// # Errors
/// 400 if the model does not take a part, or its content is not allowed or cannot be fetched. As in
/// vLLM, a model of texts alone takes no content, also one of texts.
pub(super) async fn sides(
    exchange: &Exchange,
    name: &str,
    items: Vec<Item>,
    model: &str,
    kwargs: &Map<String, Value>,
) -> Result<Vec<PairSide>, ApiError> {
    let state = &exchange.state;
    let is_content = |item: &Item| matches!(item, Item::Parts(_));
    if state.engine.codec().media().is_none() && items.iter().any(is_content) {
        let architecture = &state.engine.loaded().architecture;
        let message = format!("MultiModalParam is not supported for {architecture}");
        return Err(ApiError::bad_request(message));
    }
    let checked = items.into_iter().enumerate().map(|(index, item)| {
        let parts = match item.into_text() {
            Ok(text) => return Ok((PairSide::from(text), None)),
            Err(parts) => parts,
        };
        let place = format!("body.{name}.{index}.content");
        if parts.is_empty() {
            return Err(ApiError::validation(&place, "List should have at least 1 item"));
        }
        let mut media = state.media_parts(model).with_kwargs(kwargs.clone());
        let parts = parts.iter().enumerate();
        let parts =
            parts.map(|(part, value)| check_part(&format!("{place}.{part}"), value, &mut media));
        let parts = parts.collect::<Result<Vec<Value>, ApiError>>()?;
        Ok((PairSide::Parts { parts, media: [].into() }, Some(media)))
    });
    let checked: Vec<(PairSide, Option<MediaParts<'_>>)> =
        checked.collect::<Result<_, ApiError>>()?;
    let mut sides = Vec::with_capacity(checked.len());
    for (side, media) in checked {
        sides.push(match (side, media) {
            (PairSide::Parts { parts, .. }, Some(media)) => {
                let media = media.load(&state.media, &exchange.memory).await?;
                PairSide::Parts { parts, media }
            }
            (side, _) => side,
        });
    }
    Ok(sides)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(value: Value) -> Result<Vec<Item>, Option<String>> {
        items("documents", value).map_err(|error| error.param)
    }

    #[test]
    fn an_object_is_an_item() {
        let (image, text) = (json!({"type": "image_url"}), json!({"type": "text", "text": "b"}));
        let a = Item::Text("a".to_owned());
        assert_eq!(read(json!("a")), Ok(vec![a.clone()]));
        let object = json!({"content": [image, text]});
        let whole = Item::Parts(vec![image.clone(), text.clone()]);
        assert_eq!(read(object.clone()), Ok(vec![whole.clone()]));
        assert_eq!(read(json!(["a", object])), Ok(vec![a.clone(), whole.clone()]));
        assert_eq!(a.into_text(), Ok("a".to_owned()));
        assert_eq!(whole.into_text(), Err(vec![image, text.clone()]));
        assert_eq!(Item::Parts(vec![text, json!("c")]).into_text(), Ok("b\nc".to_owned()));
        assert_eq!(Item::Parts(Vec::new()).into_text(), Err(Vec::new()));
    }

    #[test]
    fn other_values_are_refused() {
        let wrong = Err(Some("body.documents".to_owned()));
        for value in [json!(1), json!([1]), json!({"content": "a"}), json!([{"text": "a"}])] {
            assert_eq!(read(value.clone()), wrong, "{value}");
        }
        assert_eq!(read(json!([{"content": []}])), Ok(vec![Item::Parts(Vec::new())]));
    }
}
