//! `GET /docs`: the API's document as a page. It is plain HTML without a script, and its one style
//! sheet is built in. So it needs no other server.

use std::fmt::Write as _;

use axum::{
    extract::State,
    http::{
        HeaderName, HeaderValue,
        header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS},
    },
    response::{IntoResponse, Response},
};
use serde_json::{Map, Value};

use super::{AppState, document};

const POLICY: &str = "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
/// How deep fields of fields are shown.
const DEPTH_MAX: usize = 3;

/// `GET /docs`
pub(in crate::server) async fn page(State(state): State<AppState>) -> Response {
    let document = serde_json::to_value(document(&state.config.root_path)).unwrap_or_default();
    answer(HTML, render(&document))
}

/// `GET /docs/style.css`
pub(in crate::server) async fn style() -> Response {
    answer(CSS, include_str!("page.css").to_owned())
}

fn answer(kind: &'static str, content: String) -> Response {
    let headers: [(HeaderName, HeaderValue); 4] = [
        (CONTENT_TYPE, HeaderValue::from_static(kind)),
        (CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    ];
    (headers, content).into_response()
}

/// Returns the document as HTML.
fn render(document: &Value) -> String {
    let mut html = Html { document, text: String::new() };
    let (title, version) = (&document["info"]["title"], &document["info"]["version"]);
    let title = format!("{} {}", text(title), text(version));
    html.raw("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    html.raw("<meta name=\"viewport\" content=\"width=device-width\">\n<title>");
    html.escaped(&format!("{title}: HTTP API"));
    html.raw("</title>\n<link rel=\"stylesheet\" href=\"docs/style.css\">\n</head>\n<body>\n<h1>");
    html.escaped(&format!("{title}: HTTP API"));
    html.raw("</h1>\n<p>");
    html.escaped(text(&document["info"]["description"]));
    html.raw(" <a href=\"openapi.json\">openapi.json</a> is the same for programs.</p>\n");
    for (path, methods) in document["paths"].as_object().into_iter().flatten() {
        for (method, operation) in methods.as_object().into_iter().flatten() {
            html.operation(&method.to_uppercase(), path, operation);
        }
    }
    html.raw("</body>\n</html>\n");
    html.text
}

struct Html<'a> {
    document: &'a Value,
    text: String,
}

impl<'a> Html<'a> {
    fn raw(&mut self, html: &str) {
        self.text.push_str(html);
    }

    fn escaped(&mut self, text: &str) {
        for c in text.chars() {
            match c {
                '&' => self.raw("&amp;"),
                '<' => self.raw("&lt;"),
                '>' => self.raw("&gt;"),
                '"' => self.raw("&quot;"),
                c => self.text.push(c),
            }
        }
    }

    fn operation(&mut self, method: &str, path: &str, operation: &'a Value) {
        // Writing to a string cannot fail.
        let _ = write!(self.text, "<details>\n<summary><b>{method}</b> <code>");
        self.escaped(path);
        self.raw("</code> ");
        self.escaped(text(&operation["summary"]));
        self.raw("</summary>\n");
        let parameters = operation["parameters"].as_array().map_or(&[][..], Vec::as_slice);
        if !parameters.is_empty() {
            self.raw("<h3>Parameters</h3>\n<table>\n");
            for parameter in parameters {
                self.row(text(&parameter["name"]), &parameter["schema"], parameter);
            }
            self.raw("</table>\n");
        }
        self.fields("Request", content(&operation["requestBody"]));
        self.fields("Answer", content(&operation["responses"]["200"]));
        self.raw("</details>\n");
    }

    /// Writes the fields of a schema under a heading, if it has some.
    fn fields(&mut self, heading: &str, schema: &'a Value) {
        let fields = self.properties(schema);
        if fields.is_empty() {
            return;
        }
        let _ = write!(self.text, "<h3>{heading}</h3>\n<table>\n");
        self.rows("", &fields, 1);
        self.raw("</table>\n");
    }

    fn rows(&mut self, prefix: &str, fields: &[(&'a String, &'a Value)], depth: usize) {
        for (name, schema) in fields {
            let name = format!("{prefix}{name}");
            self.row(&name, schema, schema);
            if depth < DEPTH_MAX {
                let (inner, mark) = match schema.get("items") {
                    Some(items) => (items, "[]."),
                    None => (*schema, "."),
                };
                let inner = self.properties(inner);
                self.rows(&format!("{name}{mark}"), &inner, depth + 1);
            }
        }
    }

    fn row(&mut self, name: &str, schema: &'a Value, described: &'a Value) {
        self.raw("<tr><td><code>");
        self.escaped(name);
        self.raw("</code></td><td>");
        let kind = self.kind(schema);
        self.escaped(&kind);
        self.raw("</td><td>");
        self.escaped(text(&described["description"]));
        self.raw("</td></tr>\n");
    }

    /// Returns the schema that a reference leads to.
    fn resolved(&self, schema: &'a Value) -> &'a Value {
        let reference = schema["$ref"].as_str().and_then(|path| path.strip_prefix('#'));
        let found = reference.and_then(|pointer| self.document.pointer(pointer));
        match (found, schema["oneOf"].as_array(), schema["allOf"].as_array()) {
            (Some(found), ..) => found,
            // An optional object.
            (None, Some(any), _) => {
                let object = any.iter().find(|one| one.get("$ref").is_some());
                object.map_or(schema, |one| self.resolved(one))
            }
            (None, None, Some(all)) if all.len() == 1 => self.resolved(&all[0]),
            _ => schema,
        }
    }

    fn properties(&self, schema: &'a Value) -> Vec<(&'a String, &'a Value)> {
        let schema = self.resolved(schema);
        let own = schema["properties"].as_object().into_iter().flat_map(Map::iter);
        let parts = schema["allOf"].as_array().into_iter().flatten();
        let parts = parts.flat_map(|part| self.properties(part));
        own.chain(parts).collect()
    }

    /// Returns the name of a schema's type.
    fn kind(&self, schema: &'a Value) -> String {
        let schema = self.resolved(schema);
        let name = match &schema["type"] {
            Value::String(name) => name.clone(),
            Value::Array(names) => {
                let names = names.iter().filter_map(Value::as_str).filter(|name| *name != "null");
                names.collect::<Vec<_>>().join(" or ")
            }
            _ => return "any".to_owned(),
        };
        match (name.as_str(), schema.get("items"), schema["enum"].as_array()) {
            ("array", Some(items), _) => format!("list of {}", self.kind(items)),
            (_, _, Some(words)) => {
                let words: Vec<String> = words.iter().map(|word| text(word).to_owned()).collect();
                words.join(", ")
            }
            _ => name,
        }
    }
}

/// Returns the schema of a body in JSON.
fn content(body: &Value) -> &Value {
    &body["content"]["application/json"]["schema"]
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_route_and_its_fields_are_on_the_page() {
        let document = serde_json::to_value(document("")).unwrap();
        let html = render(&document);
        for path in document["paths"].as_object().unwrap().keys() {
            assert!(html.contains(&format!("<code>{path}</code>")), "{path}");
        }
        for field in ["temperature", "messages", "options.num_predict", "usage.prompt_tokens"] {
            assert!(html.contains(&format!("<code>{field}</code>")), "{field}");
        }
        for forbidden in ["<script", "style=", "http://", "https://", "onclick"] {
            assert!(!html.contains(forbidden), "{forbidden}");
        }
        assert_eq!(html.matches("<details>").count(), html.matches("</details>").count());
    }

    #[test]
    fn text_is_escaped_and_references_are_followed() {
        let document = json!({
            "info": {"title": "A<b>", "version": "1"},
            "paths": {"/a": {"post": {
                "summary": "\"&\"",
                "requestBody": {"content": {"application/json": {"schema": {"$ref": "#/x/Q"}}}},
            }}},
            "x": {"Q": {"properties": {
                "p": {"type": ["string", "null"], "description": "Words"},
                "q": {"oneOf": [{"type": "null"}, {"$ref": "#/x/R"}]},
            }}, "R": {"type": "object", "properties": {"r": {"type": "array", "items": {"type": "integer"}}}}},
        });
        let html = render(&document);
        assert!(html.contains("A&lt;b&gt; 1") && html.contains("&quot;&amp;&quot;"), "{html}");
        assert!(html.contains("<code>p</code></td><td>string</td><td>Words"), "{html}");
        assert!(html.contains("<code>q.r</code></td><td>list of integer"), "{html}");
    }
}
