//! Paths under a prefix. A proxy may strip the prefix or leave it.

use axum::{
    extract::Request,
    http::{Uri, uri::PathAndQuery},
};

/// Returns the request without the prefix `root` of its path, if it has one.
pub(in crate::server) fn strip(root: &str, mut request: Request) -> Request {
    if let Some(uri) = stripped(root, request.uri()) {
        *request.uri_mut() = uri;
    }
    request
}

fn stripped(root: &str, uri: &Uri) -> Option<Uri> {
    if root.is_empty() {
        return None;
    }
    let rest =
        uri.path().strip_prefix(root).filter(|rest| rest.is_empty() || rest.starts_with('/'))?;
    let path = if rest.is_empty() { "/" } else { rest };
    let whole = match uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(whole).ok()?);
    Uri::from_parts(parts).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_prefix_goes() {
        let path = |root, uri: &'static str| {
            stripped(root, &Uri::from_static(uri)).map(|uri| uri.to_string())
        };
        assert_eq!(path("/llm", "/llm/v1/models?a=b").as_deref(), Some("/v1/models?a=b"));
        assert_eq!(path("/llm", "/llm").as_deref(), Some("/"));
        assert_eq!(path("/llm", "http://x/llm/health").as_deref(), Some("http://x/health"));
        assert_eq!(path("/llm", "/llmv1/models"), None);
        assert_eq!(path("/llm", "/v1/llm"), None);
        assert_eq!(path("", "/v1/models"), None);
    }
}
