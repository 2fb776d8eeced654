//! Turns the bytes of a request into its type. Every fault in the bytes is reported to the client.

use std::error::Error;

use axum::{
    body::Bytes,
    extract::{FromRequest, FromRequestParts, MatchedPath, Query, Request},
    http::{HeaderMap, header::CONTENT_TYPE, request},
};
use serde::de::DeserializeOwned;
use serde_path_to_error::{Path, Segment};

use super::{
    body::{self, BodyLimits},
    body_copy::BodyCopy,
    error::ApiError,
    parts::{FromParts, Parts},
    unknown_fields,
};
use crate::config::LimitSettings;
use crate::server::{
    memory::{RequestMemory, json::value_bytes},
    state::AppState,
};

/// Largest body that is not parsed on a blocking thread, bytes.
const PARSE_INLINE_MAX: usize = 1 << 20;

/// A request that can be read from a JSON object.
pub(in crate::server) trait JsonRequest: Sized + Send + 'static {
    /// Reads the request from the text of a whole body.
    fn from_json(text: &str) -> Result<Self, ApiError>;

    /// Returns the number of bytes that reading `body` takes for copies of its parts, in addition
    /// to the lease that every body has.
    fn copied_bytes(_body: &[u8]) -> usize {
        0
    }

    /// Returns the names of the fields that were read. All others were ignored.
    fn fields(&self) -> Vec<&'static str>;

    /// Rejects a request that exceeds a limit.
    fn check_limits(&self, limits: &LimitSettings) -> Result<(), ApiError>;
}

impl<T: FromParts> JsonRequest for T {
    fn from_json(text: &str) -> Result<Self, ApiError> {
        Self::from_parts(T::Parts::parse(text)?)
    }

    fn fields(&self) -> Vec<&'static str> {
        T::Parts::fields()
    }

    fn check_limits(&self, limits: &LimitSettings) -> Result<(), ApiError> {
        FromParts::check_limits(self, limits)
    }
}

/// Extracts a [`JsonRequest`] from the body.
pub(in crate::server) struct JsonBody<T>(pub(in crate::server) T);

impl<T: JsonRequest> FromRequest<AppState> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &AppState) -> Result<Self, ApiError> {
        let memory = RequestMemory::of(request.extensions(), state);
        let route = request.extensions().get::<MatchedPath>().cloned();
        let route = route.as_ref().map_or("", MatchedPath::as_str).to_owned();
        let (parts, body) = request.into_parts();
        let limits = BodyLimits::of(&parts.extensions, &state.config);
        let bytes = body::read(&parts.headers, body, limits, &memory).await?;
        let bytes = Bytes::from(bytes);
        if let Some(copy) = parts.extensions.get::<BodyCopy>() {
            copy.set(bytes.clone());
        }
        if !is_json(&parts.headers) {
            return Err(ApiError::unsupported_media_type());
        }
        let is_short = bytes.len() <= PARSE_INLINE_MAX;
        let weigh = move || (value_bytes(&bytes), bytes);
        let (values, bytes) = parsing(is_short, weigh).await?;
        memory.grow(values).await?;
        let copies = move || (T::copied_bytes(&bytes), bytes);
        let (copied, bytes) = parsing(is_short, copies).await?;
        memory.grow(copied).await?;
        let config = state.config.clone();
        parsing(is_short, move || decode(&bytes, &route, &config.limits).map(Self)).await?
    }
}

/// Returns the output of `work` on a whole body. It runs on a blocking thread unless the body is
/// short.
async fn parsing<T: Send + 'static>(
    is_short: bool,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ApiError> {
    if is_short {
        return Ok(work());
    }
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| ApiError::internal(error.to_string()))
}

/// Extracts the query after the `?`.
pub(in crate::server) struct QueryOf<T>(pub(in crate::server) T);

impl<T: DeserializeOwned> FromRequestParts<AppState> for QueryOf<T> {
    type Rejection = ApiError;

    async fn from_request_parts(
        parts: &mut request::Parts,
        _: &AppState,
    ) -> Result<Self, ApiError> {
        let query = Query::try_from_uri(&parts.uri);
        let query = query.map_err(|error| {
            let place =
                parameter(&error).map_or("query".to_owned(), |name| format!("query.{name}"));
            ApiError::validation(&place, error.body_text())
        })?;
        Ok(Self(query.0))
    }
}

/// Returns the name of the parameter that an error is about. One of its causes begins with it.
fn parameter(error: &dyn Error) -> Option<String> {
    let is_name = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if let Some((name, _)) = text.split_once(": ").filter(|(name, _)| is_name(name)) {
            return Some(name.to_owned());
        }
        cause = error.source();
    }
    None
}

/// Extracts the parameters in the path.
pub(in crate::server) struct PathOf<T>(pub(in crate::server) T);

impl<T: DeserializeOwned + Send> FromRequestParts<AppState> for PathOf<T> {
    type Rejection = ApiError;

    async fn from_request_parts(
        parts: &mut request::Parts,
        state: &AppState,
    ) -> Result<Self, ApiError> {
        let path = axum::extract::Path::from_request_parts(parts, state).await;
        let path = path.map_err(|error| ApiError::validation("path", error.body_text()))?;
        Ok(Self(path.0))
    }
}

/// Reads the body of the route at `route`.
pub(in crate::server) fn decode<T: JsonRequest>(
    bytes: &[u8],
    route: &str,
    limits: &LimitSettings,
) -> Result<T, ApiError> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let place = format!("body.{}", error.valid_up_to());
        ApiError::validation(&place, "the body is not valid UTF-8")
    })?;
    // Some clients on Windows begin a text with the mark of UTF-8.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let depth_max = limits.max_json_depth;
    if nests_deeper(bytes, depth_max) {
        let message = format_args!("the JSON is nested deeper than {depth_max} levels");
        return Err(ApiError::validation("body", message));
    }
    let request = T::from_json(text)?;
    unknown_fields::count(route, text, &request.fields());
    request.check_limits(limits)?;
    Ok(request)
}

/// Returns whether the JSON is nested too deeply. Counts brackets outside strings, because the
/// parser checks whether they pair up.
fn nests_deeper(json: &[u8], depth_max: usize) -> bool {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => depth += 1,
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > depth_max {
            return true;
        }
    }
    false
}

fn is_json(headers: &HeaderMap) -> bool {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media_type = value.and_then(|value| value.split(';').next());
    media_type.is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
}

/// Reads `T` from a JSON object. Fields that `T` does not have are ignored. An error names the
/// place.
pub(in crate::server) fn parse_object<T: DeserializeOwned>(text: &str) -> Result<T, ApiError> {
    let start = text.trim_start();
    if start.is_empty() {
        return Err(ApiError::validation("body", "Field required"));
    }
    let mut json = serde_json::Deserializer::from_str(text);
    // serde reads structs from arrays as well. The API does not.
    if start.starts_with('{') {
        let value = serde_path_to_error::deserialize(&mut json);
        let value = value.map_err(|error| explain(error.path(), error.inner()))?;
        json.end().map_err(|error| explain_syntax(&error))?;
        return Ok(value);
    }
    serde_json::from_str::<serde::de::IgnoredAny>(text).map_err(|error| explain_syntax(&error))?;
    Err(ApiError::validation("body", "Input should be a valid dictionary"))
}

fn explain(path: &Path, error: &serde_json::Error) -> ApiError {
    if !error.is_data() {
        return explain_syntax(error);
    }
    let mut place = String::from("body");
    for segment in path {
        match segment {
            Segment::Seq { index } => place.push_str(&format!(".{index}")),
            Segment::Map { key } => place.push_str(&format!(".{key}")),
            Segment::Enum { .. } | Segment::Unknown => {}
        }
    }
    ApiError::validation(&place, error)
}

fn explain_syntax(error: &serde_json::Error) -> ApiError {
    ApiError::validation("body", format_args!("JSON decode error: {error}"))
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    struct Probe {
        #[serde(rename = "size")]
        _size: Option<f32>,
        #[serde(default, rename = "parts")]
        _parts: Vec<Part>,
    }

    #[derive(Debug, Deserialize)]
    struct Part {
        #[serde(rename = "name")]
        _name: String,
    }

    impl JsonRequest for Probe {
        fn from_json(text: &str) -> Result<Self, ApiError> {
            parse_object(text)
        }

        fn fields(&self) -> Vec<&'static str> {
            vec!["size", "parts"]
        }

        fn check_limits(&self, _limits: &LimitSettings) -> Result<(), ApiError> {
            Ok(())
        }
    }

    #[test]
    fn a_body_may_begin_with_the_mark_of_utf_8() {
        let read = |body: &str| {
            decode::<Probe>(body.as_bytes(), "/probe", &LimitSettings::default()).is_ok()
        };
        assert!(read("\u{feff}{\"size\": 1}"));
        assert!(!read("\u{feff}\u{feff}{}"));
    }

    fn param(text: &str) -> String {
        parse_object::<Probe>(text).unwrap_err().param.unwrap()
    }

    #[test]
    fn an_error_names_its_place() {
        assert_eq!(param(r#"{"size": "hot"}"#), "body.size");
        assert_eq!(param(r#"{"parts": [{"name": "a"}, {"name": 1}]}"#), "body.parts.1.name");
        assert_eq!(param(""), "body");
        assert_eq!(param("[]"), "body");
        assert_eq!(param(r#"["hot", []]"#), "body");
        assert_eq!(param(r#"{"size": "#), "body");
        assert_eq!(param(r#"{} {}"#), "body");
    }

    #[test]
    fn a_wrong_parameter_is_named() {
        let uri = "/sleep?size=hot".parse().unwrap();
        let error = Query::<Probe>::try_from_uri(&uri).map(drop).unwrap_err();
        assert_eq!(parameter(&error).as_deref(), Some("size"), "{error}");
    }

    #[test]
    fn nesting_is_bounded_wherever_it_is() {
        const MAX: usize = 100;
        let nested = |depth| format!(r#"{{"x": {}{}}}"#, "[".repeat(depth), "]".repeat(depth));
        assert!(!nests_deeper(nested(MAX - 1).as_bytes(), MAX));
        assert!(nests_deeper(nested(MAX).as_bytes(), MAX));
        assert!(nests_deeper(nested(5_000).as_bytes(), MAX));
        let text = format!(r#"{{"x": "\"{}"}}"#, "[".repeat(5_000));
        assert!(!nests_deeper(text.as_bytes(), MAX), "brackets within a string are text");
        let side_by_side = format!("[{}]", "[],".repeat(5_000));
        assert!(!nests_deeper(side_by_side.as_bytes(), MAX));
    }

    #[test]
    fn only_json_is_taken() {
        let with = |value: &'static str| {
            is_json(&HeaderMap::from_iter([(CONTENT_TYPE, value.parse().unwrap())]))
        };
        assert!(with("application/json"));
        assert!(with("Application/JSON; charset=utf-8"));
        assert!(!with("text/plain"));
        assert!(!is_json(&HeaderMap::new()));
    }
}
