//! Fields of a request that no part of it knows. They are ignored, as in vLLM, and counted. So a
//! client that misspells a field can be found.

use std::fmt;

use metrics::counter;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};

/// Most names in one line of the log, and most characters of a name: the client chose them.
const NAMES_MAX: usize = 8;
const NAME_CHARS_MAX: usize = 64;

/// Counts the fields of the object `text` that are not `known`.
pub(in crate::server) fn count(route: &str, text: &str, known: &[&str]) {
    let unknown = unknown(text, known);
    if unknown.is_empty() {
        return;
    }
    // By route alone: a label with the names could become as large as clients like.
    counter!("playhouse:unknown_request_fields_total", "route" => route.to_owned())
        .increment(unknown.len() as u64);
    let names: Vec<String> = unknown
        .iter()
        .take(NAMES_MAX)
        .map(|name| name.chars().take(NAME_CHARS_MAX).collect())
        .collect();
    tracing::debug!(route, count = unknown.len(), ?names, "unknown request fields are ignored");
}

/// Returns the unknown names. Text that is no object has none.
fn unknown(text: &str, known: &[&str]) -> Vec<String> {
    let mut json = serde_json::Deserializer::from_str(text);
    json.deserialize_map(Unknown(known)).unwrap_or_default()
}

struct Unknown<'a>(&'a [&'a str]);

impl<'de> Visitor<'de> for Unknown<'_> {
    type Value = Vec<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Vec<String>, A::Error> {
        let mut unknown = Vec::new();
        while let Some((name, IgnoredAny)) = object.next_entry::<String, IgnoredAny>()? {
            if !self.0.contains(&name.as_str()) {
                unknown.push(name);
            }
        }
        Ok(unknown)
    }
}

#[cfg(test)]
mod tests {
    use metrics::with_local_recorder;
    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;

    #[test]
    fn other_fields_are_unknown() {
        let text = r#"{"a": 1, "\u0062": {"x": 1}, "min_characters": [2], "c": null}"#;
        assert_eq!(unknown(text, &["a", "b"]), ["min_characters", "c"]);
        assert!(unknown("{}", &[]).is_empty());
        assert!(unknown("[1]", &[]).is_empty());
    }

    #[test]
    fn the_counter_has_the_route_for_a_label_and_nothing_else() {
        let recorder = PrometheusBuilder::new().build_recorder();
        with_local_recorder(&recorder, || {
            count("/v1/completions", r#"{"prompt": "secret", "x": 1, "y": 2}"#, &["prompt"]);
            count("/v1/completions", r#"{"prompt": "secret"}"#, &["prompt"]);
        });
        let text = recorder.handle().render();
        let line = r#"playhouse:unknown_request_fields_total{route="/v1/completions"} 2"#;
        assert!(text.contains(line), "{text}");
    }
}
