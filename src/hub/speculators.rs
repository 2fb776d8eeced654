//! Checkpoints of the library speculators that are given as the model. They are heads, and their
//! configs name the models that they guess for. As in vLLM, the engine loads that model, with the
//! head as its drafter.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{HubError, name::ModelName, named};
use crate::config::{EngineConfig, SpeculativeConfig, SpeculativeMethod};

/// Returns the name of the model for which the head in the folder `path` guesses. `None` if it is
/// no head of that library. `given` is its name for errors.
///
/// # Errors
/// [`HubError::Verifier`] if its config names no model, or a path. A config from elsewhere must
/// not choose a folder of this machine.
pub(super) fn verifier(path: &Path, given: &str) -> Result<Option<ModelName>, HubError> {
    let config = crate::files::read(&path.join("config.json")).ok();
    let config: Option<Value> = config.and_then(|config| serde_json::from_slice(&config).ok());
    let speculators = config.as_ref().and_then(|config| config.get("speculators_config"));
    let Some(speculators) = speculators.filter(|speculators| !speculators.is_null()) else {
        return Ok(None);
    };
    let verifier = &speculators["verifier"]["name_or_path"];
    let name = verifier.as_str().and_then(|verifier| named(Path::new(verifier)));
    let name = name.filter(|name| name.file.is_none());
    name.map(Some).ok_or_else(|| HubError::Verifier {
        name: given.to_owned(),
        verifier: verifier.to_string(),
    })
}

/// Makes the head in the folder `head` the drafter. `given` is its name for errors, and `verifier`
/// that of its model.
///
/// # Errors
/// [`HubError::IdleHead`] if the settings guess without weights, because the head would be unused.
pub(super) fn draft_with(
    config: &mut EngineConfig,
    head: PathBuf,
    given: &str,
    verifier: &ModelName,
) -> Result<(), HubError> {
    let idle = |method| HubError::IdleHead {
        name: given.to_owned(),
        method,
        verifier: verifier.to_string(),
    };
    let method = SpeculativeMethod::DraftModel { model: head };
    match &mut config.speculative_config {
        None => config.speculative_config = Some(SpeculativeConfig::new(method, 0)),
        Some(speculative) => match speculative.method {
            SpeculativeMethod::Ngram(_) => return Err(idle("ngram")),
            SpeculativeMethod::Suffix(_) => return Err(idle("suffix")),
            SpeculativeMethod::DraftModel { .. } | SpeculativeMethod::Head { .. } => {
                speculative.method = method;
            }
        },
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hub::with_files;

    /// Returns the settings of a server with this model, whose cache is `root`, without a network.
    fn resolved(root: &Path, model: &str) -> Result<EngineConfig, String> {
        let (download_dir, offline) = (Some(root.to_owned()), true);
        let config = EngineConfig { download_dir, offline, ..EngineConfig::new(model) };
        with_files(config, &mut |_| ()).map_err(|error| error.to_string())
    }

    /// Puts a model with this config into the cache. Returns its folder.
    fn cached(root: &Path, repo: &str, config: &str, has_tokenizer: bool) -> PathBuf {
        let folder = root.join(repo).join("snapshots/main");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("config.json"), config).unwrap();
        std::fs::write(folder.join("model.safetensors"), "").unwrap();
        if has_tokenizer {
            std::fs::write(folder.join("tokenizer.json"), "{}").unwrap();
        }
        folder
    }

    /// As vLLM's `maybe_override_with_speculators`.
    #[test]
    fn a_head_as_the_model_is_the_drafter_of_its_verifier() {
        let root = tempfile::TempDir::new().unwrap();
        let config = |verifier: &str| {
            format!(
                r#"{{"speculators_model_type": "eagle3", "speculators_config":
                {{"proposal_methods": [{{"speculative_tokens": 3}}],
                 "verifier": {{"name_or_path": "{verifier}"}}}}}}"#
            )
        };
        let head = cached(root.path(), "models--org--head", &config("org/base"), false);
        let base = cached(root.path(), "models--org--base", "{}", true);
        let method = SpeculativeMethod::DraftModel { model: head.clone() };
        for given in ["org/head", head.to_str().unwrap()] {
            let config = resolved(root.path(), given).unwrap();
            assert_eq!(config.model, base);
            assert_eq!(config.served_names(), [given]);
            let speculative = config.speculative_config.clone().unwrap();
            let (own, number) = (speculative.method, speculative.num_speculative_tokens);
            assert_eq!((own, number), (method.clone(), 0));
        }
        for method in ["ngram", "suffix"] {
            let text = format!(r#"{{"method": "{method}", "num_speculative_tokens": 2}}"#);
            let (download_dir, offline) = (Some(root.path().to_owned()), true);
            let speculative_config = Some(serde_json::from_str(&text).unwrap());
            let head = EngineConfig::new("org/head");
            let config = EngineConfig { download_dir, offline, speculative_config, ..head };
            let error = with_files(config, &mut |_| ()).err().unwrap().to_string();
            let expected = format!("the method {method}, which uses no head: leave");
            assert!(error.contains(&expected) && error.contains("org/base"), "{error}");
        }
        for path in ["/etc", "src/hub", "no name"] {
            std::fs::write(head.join("config.json"), config(path)).unwrap();
            let error = resolved(root.path(), "org/head").unwrap_err();
            assert!(error.contains("verifier.name_or_path") && error.contains(path), "{error}");
        }
    }
}
