//! The sides of pairs as a body has them: texts, and contents with images, videos and sounds.

use serde_json::Value;

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
/// As in vLLM, each part of an object alone is an item, and an object in a list is one.
pub(super) fn items(name: &str, value: Value) -> Result<Vec<Item>, ApiError> {
    let wrong = || {
        let message = "Input should be a valid string, an object with a list `content`, or a list \
                       of these";
        ApiError::validation(&format!("body.{name}"), message)
    };
    let parts = |value: Value| match value {
        Value::Object(mut fields) => match fields.remove("content") {
            Some(Value::Array(parts)) => Some(parts),
            _ => None,
        },
        _ => None,
    };
    let item = |value: Value| match value {
        Value::String(text) => Ok(Item::Text(text)),
        value => parts(value).map(Item::of_parts).ok_or_else(wrong),
    };
    match value {
        Value::Array(list) => list.into_iter().map(item).collect(),
        Value::String(text) => Ok(vec![Item::Text(text)]),
        value => {
            let parts = parts(value).ok_or_else(wrong)?;
            Ok(parts.into_iter().map(|part| Item::of_parts(vec![part])).collect())
        }
    }
}

impl Item {
    /// Returns the item of some parts. Parts that are all text are one text.
    fn of_parts(parts: Vec<Value>) -> Self {
        let text = |part: &Value| match part {
            Value::String(text) => Some(text.clone()),
            part if part.get("type").and_then(Value::as_str) == Some("text") => {
                part.get("text").and_then(Value::as_str).map(str::to_owned)
            }
            _ => None,
        };
        let texts: Option<Vec<String>> = parts.iter().map(text).collect();
        match texts {
            Some(texts) if !texts.is_empty() => Self::Text(texts.join("\n")),
            _ => Self::Parts(parts),
        }
    }
}

/// Returns the items of the field `name` with their content.
///
/// # Errors
/// 400 if the model does not take a part, or its content is not allowed or cannot be fetched.
pub(super) async fn sides(
    exchange: &Exchange,
    name: &str,
    items: Vec<Item>,
    model: &str,
) -> Result<Vec<PairSide>, ApiError> {
    let state = &exchange.state;
    let checked = items.into_iter().enumerate().map(|(index, item)| {
        let parts = match item {
            Item::Text(text) => return Ok((PairSide::from(text), None)),
            Item::Parts(parts) => parts,
        };
        let place = format!("body.{name}.{index}.content");
        if parts.is_empty() {
            return Err(ApiError::validation(&place, "List should have at least 1 item"));
        }
        let mut media = state.media_parts(model);
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
    fn a_part_of_an_object_alone_is_an_item() {
        let (image, text) = (json!({"type": "image_url"}), json!({"type": "text", "text": "b"}));
        let (parts, a) = (Item::Parts(vec![image.clone()]), Item::Text("a".to_owned()));
        let b = Item::Text("b".to_owned());
        assert_eq!(read(json!("a")), Ok(vec![a.clone()]));
        let alone = json!({"content": [image, text]});
        assert_eq!(read(alone.clone()), Ok(vec![parts, b.clone()]));
        let whole = Item::Parts(vec![image.clone(), text.clone()]);
        assert_eq!(read(json!(["a", alone])), Ok(vec![a, whole]));
        let both = Item::Text("b\nb".to_owned());
        assert_eq!(read(json!([{"content": [text, "b"]}, "b"])), Ok(vec![both, b]));
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
