//! `GET /openapi.json`: the API as OpenAPI 3.1. It is made of the types that requests are read into
//! and answers are written from.
//!
//! A new route is a line in `paths.rs`: method, path, the types of request and answer, and a
//! sentence. The schema of a request is that of the [`Parts`](super::http::parts::Parts) it is read
//! from, so the two cannot diverge. Parts and answers derive `ToSchema`. The types of a part's
//! fields also derive `Serialize`, for their defaults. Two types with the same name need
//! `#[schema(as = …)]` on one. Tests fail for a route without a line, and for a field without a
//! schema.

mod conversation;
mod document;
mod fields;
pub(super) mod page;
mod paths;

use axum::{Json, extract::State};
use utoipa::openapi::OpenApi;

pub(super) use self::conversation::{ChatMessageParam, ToolChoiceParam, ToolParam};
use self::document::Document;
use super::state::AppState;

/// `GET /openapi.json`
pub(super) async fn serve(State(state): State<AppState>) -> Json<OpenApi> {
    Json(document(&state.config.root_path))
}

/// Returns the document of a server under `root_path`.
fn document(root_path: &str) -> OpenApi {
    let mut document = Document::default();
    paths::describe(&mut document);
    document.finish(root_path)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::*;

    fn described() -> Document {
        let mut document = Document::default();
        paths::describe(&mut document);
        document
    }

    #[test]
    fn every_route_is_described_and_nothing_else_is() {
        let source = concat!(
            include_str!("../mod.rs"),
            include_str!("../admin/mod.rs"),
            include_str!("../audio/mod.rs"),
            include_str!("../ollama/mod.rs"),
            include_str!("../pooling/mod.rs"),
        );
        let routes = source.split(".route(").skip(1).filter_map(|route| route.split('"').nth(1));
        let routes: BTreeSet<String> = routes.map(|route| route.replace("{*", "{")).collect();
        assert!(routes.len() > 10, "the routes were not found");
        let written = serde_json::to_value(document("")).unwrap();
        let paths = written["paths"].as_object().unwrap();
        let described: BTreeSet<String> = paths.keys().cloned().collect();
        assert_eq!(described, routes);
    }

    #[test]
    fn every_field_that_is_read_has_a_schema_and_the_reverse() {
        for request in &described().requests {
            let read: BTreeSet<&str> = request.fields.iter().copied().collect();
            let told: BTreeSet<&str> = request.properties.iter().map(String::as_str).collect();
            assert_eq!(read, told, "{}", request.name);
            assert!(!read.is_empty(), "{}", request.name);
        }
    }

    #[test]
    fn a_name_stands_for_one_schema() {
        let document = described();
        assert!(document.clashes.is_empty(), "{:?} need #[schema(as = …)]", document.clashes);
    }

    #[test]
    fn every_reference_leads_somewhere() {
        let written = serde_json::to_value(document("/llm")).unwrap();
        let mut open = vec![&written];
        let mut found = 0;
        while let Some(value) = open.pop() {
            if let Some(Value::String(reference)) = value.get("$ref") {
                let pointer = reference.strip_prefix('#').unwrap();
                assert!(written.pointer(pointer).is_some(), "{reference}");
                found += 1;
            }
            match value {
                Value::Object(fields) => open.extend(fields.values()),
                Value::Array(items) => open.extend(items),
                _ => {}
            }
        }
        assert!(found > 10);
        assert_eq!(written["servers"][0]["url"], "/llm");
    }
}
