//! The page at `/`: built-in files, and the headers of their responses. The page asks the API for
//! its data, as any client does. This module knows only bytes.

mod files;

use std::sync::Arc;

use axum::{
    Router,
    body::Bytes,
    extract::Path,
    http::{
        HeaderMap, HeaderName, HeaderValue, Method, StatusCode,
        header::{
            CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH,
            REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
        },
    },
    response::{IntoResponse, Response},
    routing::get,
};
use sha2::{Digest, Sha256};

use self::files::FILES;
use super::{http::error::ApiError, state::AppState};

/// Allows nothing from elsewhere, and no script and no style within the document. The page shows
/// pictures, and plays sounds, that its user has chosen.
const POLICY: &str = "default-src 'self'; img-src 'self' blob:; media-src 'self' blob:; \
                      base-uri 'self'; form-action 'none'; frame-ancestors 'none'; object-src 'none'";
/// The line that sets the base of the document's relative addresses.
const BASE: &str = r#"<base href="/">"#;

/// A file, ready to be sent.
struct File {
    name: &'static str,
    kind: &'static str,
    content: Bytes,
    /// A hash of the content, in quotes.
    etag: String,
}

/// Returns the routes of `/` and of the files that it refers to, under `/page/`.
pub(super) fn routes(root_path: &str) -> Router<AppState> {
    let files: Arc<[File]> = FILES.iter().map(|&file| File::new(file, root_path)).collect();
    let document = Arc::clone(&files);
    let index = async move |headers: HeaderMap| answer(&document, "index.html", &headers);
    let file =
        async move |Path(name): Path<String>, headers: HeaderMap| answer(&files, &name, &headers);
    Router::new().route("/", get(index)).route("/page/{*file}", get(file))
}

/// Returns whether `path` leads to a file of the page.
pub(super) fn is_file(path: &str) -> bool {
    path == "/" || path.starts_with("/page/")
}

fn answer(files: &[File], name: &str, headers: &HeaderMap) -> Response {
    match files.iter().find(|file| file.name == name) {
        Some(file) => file.answer(headers),
        None => ApiError::not_found(&Method::GET, &format!("/page/{name}")).into_response(),
    }
}

impl File {
    fn new((name, kind, content): (&'static str, &'static str, &'static str), root: &str) -> Self {
        let content = match name {
            // Behind a proxy, the page may not be at the top.
            "index.html" => {
                let base = format!(r#"<base href="{}/">"#, escaped(root));
                Bytes::from(content.replace(BASE, &base))
            }
            _ => Bytes::from_static(content.as_bytes()),
        };
        let hash = Sha256::digest(&content);
        let hash: String = hash.iter().take(12).map(|byte| format!("{byte:02x}")).collect();
        Self { name, kind, content, etag: format!("\"{hash}\"") }
    }

    fn answer(&self, headers: &HeaderMap) -> Response {
        let given: [(HeaderName, HeaderValue); 5] = [
            (CONTENT_TYPE, HeaderValue::from_static(self.kind)),
            // Browsers store it and check each time whether it changed: another version has another
            // hash.
            (CACHE_CONTROL, HeaderValue::from_static("no-cache")),
            (CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
            (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
            (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        ];
        let known = headers.get(IF_NONE_MATCH).and_then(|tags| tags.to_str().ok());
        let is_known = known.is_some_and(|tags| {
            tags.split(',').any(|tag| tag.trim().trim_start_matches("W/") == self.etag)
        });
        match is_known {
            true => (StatusCode::NOT_MODIFIED, given, [(ETAG, &self.etag)]).into_response(),
            false => (given, [(ETAG, &self.etag)], self.content.clone()).into_response(),
        }
    }
}

/// Returns text as it is written within an attribute.
fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('"', "&quot;");
    text.replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;

    use super::*;

    fn file(name: &str, root: &str) -> File {
        let found = FILES.iter().find(|(known, ..)| *known == name);
        File::new(*found.unwrap(), root)
    }

    #[tokio::test]
    async fn a_file_that_a_browser_has_is_not_sent_again() {
        let file = file("main.js", "");
        let fresh = file.answer(&HeaderMap::new());
        assert_eq!(fresh.status(), StatusCode::OK);
        let etag = fresh.headers()[ETAG].clone();
        for tags in [etag.to_str().unwrap().to_owned(), format!("\"x\", W/{}", file.etag)] {
            let headers = HeaderMap::from_iter([(IF_NONE_MATCH, tags.parse().unwrap())]);
            let known = file.answer(&headers);
            assert_eq!(known.status(), StatusCode::NOT_MODIFIED);
            assert_eq!(known.headers()[ETAG], etag);
            assert!(to_bytes(known.into_body(), 10).await.unwrap().is_empty());
        }
        let other = HeaderMap::from_iter([(IF_NONE_MATCH, "\"other\"".parse().unwrap())]);
        assert_eq!(file.answer(&other).status(), StatusCode::OK);
    }

    #[test]
    fn addresses_are_relative_to_where_the_server_lies() {
        let text = |root| String::from_utf8(file("index.html", root).content.to_vec()).unwrap();
        assert!(text("").contains(r#"<base href="/">"#));
        assert!(text("/llm").contains(r#"<base href="/llm/">"#));
        assert!(text("/a\"><b").contains(r#"<base href="/a&quot;&gt;&lt;b/">"#));
        assert_ne!(file("index.html", "").etag, file("index.html", "/llm").etag);
    }

    /// The page is in every program, also on small machines.
    #[test]
    fn the_page_has_at_most_600_kilobytes() {
        let bytes: usize = FILES.iter().map(|(.., content)| content.len()).sum();
        assert!(bytes <= 600_000, "{bytes} bytes");
    }

    /// An object that the policy forbids would be missing on the page without an error.
    #[test]
    fn the_document_obeys_its_policy_and_refers_to_files_that_are_there() {
        let (_, _, document) = FILES.iter().find(|(name, ..)| *name == "index.html").unwrap();
        for forbidden in ["<style", " style=", " onclick=", "http://", "https://", "//cdn"] {
            assert!(!document.contains(forbidden), "{forbidden}");
        }
        let scripts = document.matches("<script").count();
        assert_eq!(scripts, document.matches("<script type=\"module\" src=").count());
        let names = || FILES.iter().map(|(name, ..)| *name);
        let referred = document.split("\"page/").skip(1).filter_map(|rest| rest.split('"').next());
        let referred: Vec<_> = referred.collect();
        assert!(referred.len() >= 3, "{referred:?}");
        for name in referred {
            assert!(names().any(|known| known == name), "{name}");
        }
        for (name, _, script) in FILES.iter().filter(|(name, ..)| name.ends_with(".js")) {
            // The page calls those parts of the others' code alone that return trees.
            if name.starts_with("vendor/") {
                continue;
            }
            for markup in
                ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("]
            {
                assert!(!script.contains(markup), "{name} may show text only: {markup}");
            }
            for start in [" from './", " import('./"] {
                for import in script.split(start).skip(1).filter_map(|rest| rest.split('\'').next())
                {
                    assert!(names().any(|known| known == import), "{name} imports {import}");
                }
            }
        }
    }
}
