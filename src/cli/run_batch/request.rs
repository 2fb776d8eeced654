//! One line of the input.

use serde::Deserialize;
use serde_json::{Map, Value};

/// The routes that a batch may use.
const ROUTES: [&str; 2] = ["/v1/chat/completions", "/v1/completions"];

/// The key that connects an answer with its request.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    /// The request's own name.
    CustomId(String),
    /// The line's number, from 1, if it has no readable name.
    Line(u64),
}

/// A line, and its fault if it is no request.
#[derive(Debug, PartialEq)]
pub(super) struct Line {
    pub(super) number: u64,
    pub(super) custom_id: Option<String>,
    pub(super) request: Result<Request, String>,
}

/// A request that can be sent.
#[derive(Debug, PartialEq)]
pub(super) struct Request {
    pub(super) url: &'static str,
    pub(super) body: String,
}

#[derive(Deserialize)]
struct Fields {
    #[serde(default)]
    method: Option<String>,
    url: String,
    body: Map<String, Value>,
}

impl Line {
    pub(super) fn parse(number: u64, text: &[u8], limit: usize) -> Self {
        if text.len() > limit {
            let request = Err(format!("the line is longer than {limit} bytes"));
            return Self { number, custom_id: None, request };
        }
        let object: Map<String, Value> = match serde_json::from_slice(text) {
            Ok(object) => object,
            Err(error) => {
                let request = Err(format!("the line is no JSON object: {error}"));
                return Self { number, custom_id: None, request };
            }
        };
        let custom_id = match object.get("custom_id") {
            Some(Value::String(id)) if !id.is_empty() => Some(id.clone()),
            _ => None,
        };
        let request = match custom_id {
            None => Err("custom_id must be a string that is not empty".to_owned()),
            Some(_) => request(object),
        };
        Self { number, custom_id, request }
    }

    pub(super) fn key(&self) -> Key {
        self.custom_id.clone().map_or(Key::Line(self.number), Key::CustomId)
    }
}

fn request(object: Map<String, Value>) -> Result<Request, String> {
    let Fields { method, url, body } =
        serde_json::from_value(Value::Object(object)).map_err(|error| error.to_string())?;
    if method.as_deref().is_some_and(|method| method != "POST") {
        return Err(format!("method must be \"POST\", got {method:?}"));
    }
    let Some(&url) = ROUTES.iter().find(|&&route| route == url) else {
        return Err(format!("url must be one of {}, got {url:?}", ROUTES.join(", ")));
    };
    if body.get("stream").is_some_and(|stream| *stream == true) {
        return Err("stream is not supported in a batch".to_owned());
    }
    Ok(Request { url, body: Value::Object(body).to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Line {
        Line::parse(7, text.as_bytes(), 1_000)
    }

    #[test]
    fn a_request_is_read() {
        let line = parse(
            r#"{"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": "x"}}"#,
        );
        assert_eq!(line.key(), Key::CustomId("a".to_owned()));
        let body = r#"{"prompt":"x"}"#.to_owned();
        assert_eq!(line.request, Ok(Request { url: "/v1/completions", body }));
    }

    #[test]
    fn an_invalid_request_has_a_reason() {
        let cases = [
            ("{", "no JSON object"),
            ("[]", "no JSON object"),
            (r#"{"url": "/v1/completions", "body": {}}"#, "custom_id"),
            (r#"{"custom_id": 5, "url": "/v1/completions", "body": {}}"#, "custom_id"),
            (r#"{"custom_id": "a", "body": {}}"#, "url"),
            (r#"{"custom_id": "a", "url": "/v1/completions"}"#, "body"),
            (r#"{"custom_id": "a", "url": "/v1/completions", "body": []}"#, "map"),
            (r#"{"custom_id": "a", "url": "/v1/embeddings", "body": {}}"#, "/v1/embeddings"),
            (r#"{"custom_id": "a", "method": "GET", "url": "/v1/completions", "body": {}}"#, "GET"),
            (r#"{"custom_id": "a", "url": "/v1/completions", "body": {"stream": true}}"#, "stream"),
        ];
        for (text, part) in cases {
            let error = parse(text).request.unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
        assert_eq!(parse("{").key(), Key::Line(7));
        let long = Line::parse(1, &[b' '; 11], 10);
        assert!(long.request.unwrap_err().contains("longer than 10"));
    }
}
