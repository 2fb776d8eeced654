//! The variables of Hugging Face's own programs.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use super::HubError;
use crate::config::Secret;

const DEFAULT_ENDPOINT: &str = "https://huggingface.co";

/// The environment's settings of the hub and its cache.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Environment {
    /// The folder of the cache, if there is a home for it.
    pub(super) cache: Option<PathBuf>,
    /// The hub, without a slash at the end.
    pub(super) endpoint: String,
    pub(super) token: Option<Secret>,
    pub(super) is_offline: bool,
}

impl Environment {
    /// Reads the variables that `variable` returns, as `huggingface_hub` does.
    ///
    /// # Errors
    /// [`HubError::Endpoint`] if the endpoint is no URL.
    pub(super) fn read(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, HubError> {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let path = |name: &str| set(name).map(PathBuf::from);
        let text = |name: &str| set(name).map(|value| value.to_string_lossy().into_owned());
        let caches = path("XDG_CACHE_HOME").or_else(|| Some(path("HOME")?.join(".cache")));
        let caches = caches.or_else(|| Some(path("USERPROFILE")?.join(".cache")));
        let home = path("HF_HOME").or_else(|| Some(caches?.join("huggingface")));
        let cache = path("HF_HUB_CACHE").or_else(|| path("HUGGINGFACE_HUB_CACHE"));
        let cache = cache.or_else(|| Some(home.as_ref()?.join("hub")));
        let endpoint = text("HF_ENDPOINT").unwrap_or_else(|| DEFAULT_ENDPOINT.to_owned());
        let endpoint = endpoint.trim_end_matches('/').to_owned();
        let host = endpoint.strip_prefix("https://").or_else(|| endpoint.strip_prefix("http://"));
        if !host.is_some_and(|host| !host.is_empty() && is_plain(host)) {
            return Err(HubError::Endpoint(endpoint));
        }
        let file = path("HF_TOKEN_PATH").or_else(|| Some(home?.join("token")));
        let token = text("HF_TOKEN").or_else(|| text("HUGGING_FACE_HUB_TOKEN"));
        let token = token.or_else(|| read_token(&file?)).map(Secret::new);
        let is_offline = ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"]
            .iter()
            .any(|name| text(name).is_some_and(|value| is_true(&value)));
        Ok(Self { cache, endpoint, token, is_offline })
    }
}

fn is_plain(host: &str) -> bool {
    host.chars().all(|c| c.is_ascii_graphic())
}

fn is_true(value: &str) -> bool {
    ["1", "on", "yes", "true"].contains(&value.to_lowercase().as_str())
}

fn read_token(file: &Path) -> Option<String> {
    let token = crate::files::read_to_string(file).ok()?.trim().to_owned();
    (!token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Result<Environment, HubError> {
        Environment::read(|name| {
            let value = variables.iter().find(|(known, _)| *known == name);
            value.map(|(_, value)| OsString::from(*value))
        })
    }

    #[test]
    fn the_cache_is_where_other_programs_have_it() {
        for (variables, expected) in [
            (&[("HOME", "/h")][..], "/h/.cache/huggingface/hub"),
            (&[("HOME", "/h"), ("XDG_CACHE_HOME", "/x")], "/x/huggingface/hub"),
            (&[("HOME", "/h"), ("HF_HOME", "/hf")], "/hf/hub"),
            (&[("HF_HOME", "/hf"), ("HF_HUB_CACHE", "/c")], "/c"),
        ] {
            assert_eq!(of(variables).unwrap().cache, Some(PathBuf::from(expected)));
        }
        assert_eq!(of(&[]).unwrap().cache, None);
    }

    #[test]
    fn the_token_is_a_variable_or_a_file() {
        let home = tempfile::TempDir::new().unwrap();
        std::fs::write(home.path().join("token"), "hf_file\n").unwrap();
        let home = home.path().to_str().unwrap();
        let token = |variables: &[(&str, &str)]| of(variables).unwrap().token;
        assert_eq!(token(&[("HF_HOME", home)]), Some(Secret::new("hf_file")));
        let both = [("HF_HOME", home), ("HF_TOKEN", "hf_variable")];
        assert_eq!(token(&both), Some(Secret::new("hf_variable")));
        assert_eq!(token(&[("HF_HOME", home), ("HF_TOKEN_PATH", "/none")]), None);
    }

    #[test]
    fn an_endpoint_is_a_url() {
        assert_eq!(of(&[]).unwrap().endpoint, "https://huggingface.co");
        let mirror = of(&[("HF_ENDPOINT", "http://mirror:8080/")]).unwrap();
        assert_eq!(mirror.endpoint, "http://mirror:8080");
        for wrong in ["mirror", "ftp://mirror", "https://", "https://a b"] {
            let error = of(&[("HF_ENDPOINT", wrong)]).unwrap_err();
            assert!(matches!(error, HubError::Endpoint(_)), "{error}");
        }
    }

    #[test]
    fn offline_is_a_switch() {
        for (value, expected) in [("1", true), ("TRUE", true), ("0", false), ("", false)] {
            assert_eq!(of(&[("HF_HUB_OFFLINE", value)]).unwrap().is_offline, expected);
        }
    }
}
