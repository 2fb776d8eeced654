//! One line of the input.

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::api::PoolingTask;

/// The routes that a batch may use, each with its API's name in vLLM's errors.
const ROUTES: [(&str, Api); 12] = [
    ("/v1/chat/completions", Api::Generate("Chat Completions API")),
    ("/v1/completions", Api::Generate("Completions API")),
    ("/v1/embeddings", Api::Pool(PoolingTask::Embed, "Embeddings API")),
    ("/classify", Api::Pool(PoolingTask::Classify, "Classification API")),
    ("/score", Api::Compare("Scores API")),
    ("/v1/score", Api::Compare("Scores API")),
    ("/rerank", Api::Compare("Rerank API")),
    ("/v1/rerank", Api::Compare("Rerank API")),
    ("/v2/rerank", Api::Compare("Rerank API")),
    ("/pooling", Api::AnyPooling("Pooling API")),
    ("/v1/audio/transcriptions", Api::Hear("Transcriptions API")),
    ("/v1/audio/translations", Api::Hear("Translations API")),
];

/// The work of a route, and its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Api {
    Generate(&'static str),
    Pool(PoolingTask, &'static str),
    Compare(&'static str),
    AnyPooling(&'static str),
    Hear(&'static str),
}

/// The work that a model can do.
#[derive(Debug, Clone)]
pub(super) struct Abilities {
    pub(super) generates: bool,
    /// The pooling that its routes are open for.
    pub(super) pooling: Option<PoolingTask>,
    /// Whether it scores pairs of texts.
    pub(super) compares: bool,
    /// Whether it writes down what it hears.
    pub(super) hears: bool,
}

impl Abilities {
    /// Returns the error of a route that the model does not have, if it does not.
    pub(super) fn lack(&self, url: &str) -> Option<String> {
        let (_, api) = ROUTES.iter().find(|(route, _)| *route == url)?;
        let (has, name) = match *api {
            Api::Generate(name) => (self.generates, name),
            Api::Pool(task, name) => (self.pooling == Some(task), name),
            Api::Compare(name) => (self.compares, name),
            Api::AnyPooling(name) => (self.pooling.is_some(), name),
            Api::Hear(name) => (self.hears, name),
        };
        (!has).then(|| format!("The model does not support {name}"))
    }
}

/// U+FEFF in UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

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
        // Some editors begin a file with this mark.
        let text = text.strip_prefix(BYTE_ORDER_MARK).filter(|_| number == 1).unwrap_or(text);
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
    if let Some(method) = method.filter(|method| method != "POST") {
        return Err(format!("method must be \"POST\", got {method:?}"));
    }
    let Some((url, _)) = ROUTES.into_iter().find(|(route, _)| *route == url) else {
        let routes = ROUTES.map(|(route, _)| route).join(", ");
        return Err(format!("url must be one of {routes}, got {url:?}"));
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
    fn a_file_may_begin_with_a_mark_and_a_wrong_method_is_shown() {
        let text = "\u{feff}{\"custom_id\": \"a\", \"url\": \"/v1/completions\", \"body\": {}}";
        let first = Line::parse(1, text.as_bytes(), 1_000);
        assert!(first.request.is_ok(), "{first:?}");
        assert!(Line::parse(2, text.as_bytes(), 1_000).request.is_err());
        let text = r#"{"custom_id": "a", "method": "GET", "url": "/x", "body": {}}"#;
        let error = parse(text).request.unwrap_err();
        assert_eq!(error, "method must be \"POST\", got \"GET\"");
    }

    #[test]
    fn a_model_has_the_routes_of_its_work() {
        let none = Abilities { generates: false, pooling: None, compares: false, hears: false };
        let embeds =
            Abilities { pooling: Some(PoolingTask::Embed), compares: true, ..none.clone() };
        assert_eq!(embeds.lack("/v1/embeddings"), None);
        assert_eq!(embeds.lack("/v1/rerank"), None);
        let lack = embeds.lack("/v1/chat/completions");
        assert_eq!(lack.as_deref(), Some("The model does not support Chat Completions API"));
        assert!(embeds.lack("/classify").is_some());
        let generates = Abilities { generates: true, ..none.clone() };
        let lack = generates.lack("/v1/audio/translations");
        assert_eq!(lack.as_deref(), Some("The model does not support Translations API"));
        let hears = Abilities { hears: true, ..none };
        assert_eq!(hears.lack("/v1/audio/transcriptions"), None);
        assert_eq!(generates.lack("/v1/completions"), None);
        assert!(generates.lack("/score").is_some() && generates.lack("/pooling").is_some());
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
            (r#"{"custom_id": "a", "url": "/v1/models", "body": {}}"#, "/v1/models"),
            (r#"{"custom_id": "a", "method": "GET", "url": "/v1/completions", "body": {}}"#, "GET"),
            (r#"{"custom_id": "a", "url": "/v1/completions", "body": {"stream": true}}"#, "stream"),
        ];
        for (text, part) in cases {
            let error = parse(text).request.unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
        assert_eq!(parse("{").key(), Key::Line(7));
        for (url, _) in ROUTES {
            let line = parse(&format!(r#"{{"custom_id": "a", "url": "{url}", "body": {{}}}}"#));
            assert_eq!(line.request.map(|request| request.url), Ok(url));
        }
        let long = Line::parse(1, &[b' '; 11], 10);
        assert!(long.request.unwrap_err().contains("longer than 10"));
    }
}
