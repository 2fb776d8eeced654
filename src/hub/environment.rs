//! The variables of Hugging Face's own programs.

use std::{
    ffi::{OsStr, OsString},
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
        let path = |name: &str| set(name).map(|value| expanded(value, &variable));
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
        let token = token.as_deref().and_then(clean).or_else(|| read_token(&file?));
        let is_set = |name: &str| text(name).is_some_and(|value| is_true(&value));
        let token = token.filter(|_| !is_set("HF_HUB_DISABLE_IMPLICIT_TOKEN")).map(Secret::new);
        let is_offline = match text("HF_HUB_OFFLINE") {
            Some(value) => is_true(&value),
            None => is_set("TRANSFORMERS_OFFLINE"),
        };
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
    clean(&crate::files::read_to_string(file).ok()?)
}

/// Returns the token in `text`, which often ends with a line break.
fn clean(text: &str) -> Option<String> {
    let token = text.trim().to_owned();
    (!token.is_empty()).then_some(token)
}

/// Returns the path in `value`. The home folder takes the place of `~`, and variables that of
/// `$NAME` and `${NAME}`. Unknown variables stay as they are.
fn expanded(value: OsString, variable: &impl Fn(&str) -> Option<OsString>) -> PathBuf {
    let Some(text) = value.to_str() else { return value.into() };
    let home = in_home(text, variable);
    let mut rest = home.as_deref().unwrap_or(text);
    let mut path = String::new();
    while let Some((before, after)) = rest.split_once('$') {
        path.push_str(before);
        let is_inner = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let end = after.find(|c: char| !is_inner(c)).unwrap_or(after.len());
        let braced = after.strip_prefix('{').and_then(|inner| inner.split_once('}'));
        let (name, behind) = braced.unwrap_or_else(|| after.split_at(end));
        match variable(name).as_deref().and_then(OsStr::to_str) {
            Some(value) if !name.is_empty() => {
                path.push_str(value);
                rest = behind;
            }
            _ => {
                path.push('$');
                rest = after;
            }
        }
    }
    path.push_str(rest);
    path.into()
}

/// Returns the path with the home folder in the place of `~`, with which it begins.
pub(super) fn in_home(path: &str, variable: &impl Fn(&str) -> Option<OsString>) -> Option<String> {
    let rest = path.strip_prefix('~').filter(|rest| rest.is_empty() || rest.starts_with('/'))?;
    Some(format!("{}{rest}", variable("HOME")?.to_str()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tilde_at_the_beginning_is_the_home_folder() {
        let in_home =
            |path| in_home(path, &|name: &str| (name == "HOME").then(|| "/home/me".into()));
        assert_eq!(in_home("~/adapters/a").as_deref(), Some("/home/me/adapters/a"));
        assert_eq!(in_home("~").as_deref(), Some("/home/me"));
        for other in ["~you/a", "a/~", "/a", "org/name"] {
            assert_eq!(in_home(other), None, "{other}");
        }
    }

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
            (&[("HOME", "/h"), ("HF_HOME", "~/hf")], "/h/hf/hub"),
            (&[("DISK", "/d"), ("HF_HUB_CACHE", "$DISK/a/${DISK}b/$c")], "/d/a//db/$c"),
            (&[("HOME", "/h"), ("HF_HUB_CACHE", "~other/$")], "~other/$"),
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
        // A file of secrets has a line break at its end, and it comes into the variable.
        let line = [("HF_HOME", home), ("HF_TOKEN", "hf_variable\r\n")];
        assert_eq!(token(&line), Some(Secret::new("hf_variable")));
        assert_eq!(token(&[("HF_HOME", home), ("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")]), None);
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
        let both = of(&[("HF_HUB_OFFLINE", "0"), ("TRANSFORMERS_OFFLINE", "1")]);
        assert!(!both.unwrap().is_offline);
    }
}
