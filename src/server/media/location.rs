//! Addresses of media on other servers, and where a redirect leads.

use axum::http::Uri;

/// A place on a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Location {
    pub(super) is_tls: bool,
    /// The name or address of the server, in small letters and without brackets.
    pub(super) host: String,
    pub(super) port: u16,
    /// The path with the query.
    pub(super) path: String,
}

impl Location {
    /// Reads an absolute URL.
    ///
    /// # Errors
    /// The reason why it names no place on a web server.
    pub(super) fn parse(url: &str) -> Result<Self, String> {
        // The fragment is for the reader of a page. It is not sent.
        let url = url.split('#').next().unwrap_or_default();
        let scheme = url.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
        let is_tls = match scheme.as_deref() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err("The URL must be either a HTTP, data or file URL.".to_owned()),
        };
        let uri: Uri = url.parse().map_err(|error| format!("the URL is not valid: {error}"))?;
        let authority = uri.authority().ok_or("the URL has no host")?;
        if authority.as_str().contains('@') {
            return Err("the URL has a user name, which is not accepted".to_owned());
        }
        let port = authority.as_str().strip_prefix(authority.host()).unwrap_or_default();
        let port = match port.strip_prefix(':').unwrap_or(port) {
            "" => Some(if is_tls { 443 } else { 80 }),
            port => port.parse().ok(),
        };
        let port = port.ok_or("the URL has a wrong port")?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        if host.is_empty() {
            return Err("the URL has no host".to_owned());
        }
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        Ok(Self { is_tls, host, port, path })
    }

    /// Returns the place that a redirect from here leads to.
    ///
    /// # Errors
    /// As [`Location::parse`]. A redirect from TLS leads to TLS.
    pub(super) fn redirected(&self, to: &str) -> Result<Self, String> {
        let is_absolute = to.split(['/', '?', '#']).next().is_some_and(|head| head.contains(':'));
        let next = if is_absolute {
            Self::parse(to)?
        } else if let Some(rest) = to.strip_prefix("//") {
            Self::parse(&format!("{}://{rest}", self.scheme()))?
        } else {
            let before = self.path.split('?').next().unwrap_or("/");
            let folder = before.rfind('/').map_or("/", |slash| &before[..=slash]);
            let path = match to {
                _ if to.starts_with('/') => to.to_owned(),
                _ if to.starts_with('?') => format!("{before}{to}"),
                _ => format!("{folder}{to}"),
            };
            Self::parse(&format!("{}://{}{path}", self.scheme(), self.authority()))?
        };
        match self.is_tls && !next.is_tls {
            true => Err("a redirect leads from https to http".to_owned()),
            false => Ok(next),
        }
    }

    /// Returns the value of the header `Host`.
    pub(super) fn authority(&self) -> String {
        let host = match self.host.contains(':') {
            true => format!("[{}]", self.host),
            false => self.host.clone(),
        };
        let is_default = self.port == if self.is_tls { 443 } else { 80 };
        if is_default { host } else { format!("{host}:{}", self.port) }
    }

    fn scheme(&self) -> &'static str {
        if self.is_tls { "https" } else { "http" }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parts(url: &str) -> Option<(bool, String, u16, String)> {
        let found = Location::parse(url).ok()?;
        Some((found.is_tls, found.host, found.port, found.path))
    }

    #[test]
    fn a_url_names_scheme_host_port_and_path() {
        let some = |is_tls, host: &str, port, path: &str| {
            Some((is_tls, host.to_owned(), port, path.to_owned()))
        };
        assert_eq!(parts("http://A.Example/x.png?y#z"), some(false, "a.example", 80, "/x.png?y"));
        assert_eq!(parts("https://a.example."), some(true, "a.example", 443, "/"));
        assert_eq!(parts("https://[2606:4700::1]:8443/x"), some(true, "2606:4700::1", 8443, "/x"));
        for wrong in [
            "",
            "x.png",
            "/x.png",
            "ftp://a.example/x",
            "file:///etc/passwd",
            "http://",
            "http://user@a.example/",
            "http://a.example:99999/",
            "http://a example/",
            "http:///x",
        ] {
            assert_eq!(parts(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_redirect_may_be_relative() {
        let from = Location::parse("https://a.example/b/c?d").unwrap();
        let to = |to: &str| from.redirected(to).map(|to| format!("{}{}", to.authority(), to.path));
        assert_eq!(to("/x"), Ok("a.example/x".to_owned()));
        assert_eq!(to("x?y"), Ok("a.example/b/x?y".to_owned()));
        assert_eq!(to("?y"), Ok("a.example/b/c?y".to_owned()));
        assert_eq!(to("//b.example:1/x"), Ok("b.example:1/x".to_owned()));
        assert_eq!(to("https://b.example/x"), Ok("b.example/x".to_owned()));
        assert!(to("http://b.example/x").is_err() && to("file:///x").is_err());
        assert!(to("javascript:x").is_err() && to("data:image/png;base64,").is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(url in ".{0,80}", to in ".{0,80}") {
            let _ = Location::parse(&url);
            if let Ok(from) = Location::parse(&format!("http://a.example/{url}")) {
                let _ = from.redirected(&to);
            }
        }
    }
}
