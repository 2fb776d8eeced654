//! The facts that the config of a draft model or a head decides, as vLLM reads them: the kind of a
//! head, and the number of its guesses.

use std::path::Path;

use serde_json::Value;

use crate::config::HeadMethod;
use crate::gguf::is_gguf;
use crate::model::config::{ConfigError, ConfigSource, Fields};
use crate::model_files;

/// The `model_type` of an MLP speculator, and the guesses that its config class has by default.
const MLP_SPECULATOR: &str = "mlp_speculator";
const MLP_SPECULATOR_GUESSES: usize = 3;
/// The end of the `model_type` of a layer that predicts several tokens a step.
const MTP: &str = "mtp";

/// The facts of a drafter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct DrafterFacts {
    /// The form of a head. `None`: a whole model.
    pub(crate) head: Option<HeadMethod>,
    /// Whether a whole model has a layer that predicts several tokens a step.
    pub(crate) has_mtp: bool,
    /// The guesses that it makes by default.
    pub(crate) num_guesses: Option<usize>,
}

impl DrafterFacts {
    /// Reads the config in the folder `path`. A GGUF file and a folder without a config have none
    /// of the facts.
    ///
    /// # Errors
    /// [`ConfigError`] if the config is malformed.
    pub(crate) fn read(path: &Path) -> Result<Self, ConfigError> {
        if is_gguf(path) || !model_files::exists(&path.join("config.json")) {
            return Ok(Self::default());
        }
        let source = ConfigSource::read(path)?;
        let fields = source.fields();
        let head = head(fields)?;
        let by_default = match head {
            Some(HeadMethod::MlpSpeculator) => Some(MLP_SPECULATOR_GUESSES),
            Some(HeadMethod::Mtp) => Some(1),
            _ => None,
        };
        let num_guesses = fields.size("n_predict")?.or(num_proposed(fields)?).or(by_default);
        Ok(Self { head, has_mtp: has_mtp(fields)?, num_guesses })
    }
}

/// Returns the form of a head.
fn head(fields: &Fields) -> Result<Option<HeadMethod>, ConfigError> {
    let model_type = fields.text("model_type")?.unwrap_or_default();
    let classes = fields.texts("architectures")?;
    let is_class =
        |name: &str| classes.iter().any(|class| class.starts_with(name) || class.ends_with(name));
    Ok(if fields.text("speculators_model_type")?.is_some() || is_class("Eagle3") {
        Some(HeadMethod::Eagle3)
    } else if is_class("Eagle") {
        Some(HeadMethod::Eagle)
    } else if model_type == MLP_SPECULATOR {
        Some(HeadMethod::MlpSpeculator)
    } else if model_type == MTP || model_type.ends_with(&format!("_{MTP}")) {
        Some(HeadMethod::Mtp)
    } else {
        None
    })
}

/// Returns whether a model has a layer that predicts several tokens a step.
fn has_mtp(fields: &Fields) -> Result<bool, ConfigError> {
    let text = fields.nested("text_config")?;
    for fields in [Some(fields), text.as_ref()].into_iter().flatten() {
        for name in ["num_nextn_predict_layers", "mtp_num_hidden_layers"] {
            if fields.count(name)?.is_some_and(|count| count > 0) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Returns the guesses of the first proposal in a config of the library speculators.
fn num_proposed(fields: &Fields) -> Result<Option<usize>, ConfigError> {
    let Some(speculators) = fields.nested("speculators_config")? else { return Ok(None) };
    let first = speculators.value("proposal_methods").and_then(|methods| methods.get(0));
    let number = first.and_then(|method| method.get("speculative_tokens"));
    Ok(number.and_then(Value::as_u64).and_then(|number| usize::try_from(number).ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(config: &str) -> DrafterFacts {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("config.json"), config).unwrap();
        DrafterFacts::read(folder.path()).unwrap()
    }

    /// The rules of vLLM's `SpeculativeConfig.__post_init__` and `SpeculatorsConfig`, and the
    /// default of its `MLPSpeculatorConfig`.
    #[test]
    fn a_config_tells_the_form_of_a_head_and_its_guesses() {
        for (config, head, num_guesses) in [
            (r#"{"architectures": ["LlamaForCausalLM"], "model_type": "llama"}"#, None, None),
            (r#"{"model_type": "llama", "n_predict": 2}"#, None, Some(2)),
            (r#"{"model_type": "mlp_speculator"}"#, Some(HeadMethod::MlpSpeculator), Some(3)),
            (
                r#"{"model_type": "mlp_speculator", "n_predict": 5}"#,
                Some(HeadMethod::MlpSpeculator),
                Some(5),
            ),
            (r#"{"architectures": ["LlamaForCausalLMEagle3"]}"#, Some(HeadMethod::Eagle3), None),
            (r#"{"architectures": ["EagleLlamaForCausalLM"]}"#, Some(HeadMethod::Eagle), None),
            (r#"{"model_type": "deepseek_mtp"}"#, Some(HeadMethod::Mtp), Some(1)),
            (
                r#"{"architectures": ["Eagle3Speculator"], "speculators_model_type": "eagle3",
                    "speculators_config": {"proposal_methods": [{"speculative_tokens": 4}]}}"#,
                Some(HeadMethod::Eagle3),
                Some(4),
            ),
        ] {
            let expected = DrafterFacts { head, has_mtp: false, num_guesses };
            assert_eq!(facts(config), expected, "{config}");
        }
        assert!(facts(r#"{"num_nextn_predict_layers": 1}"#).has_mtp);
        assert!(facts(r#"{"text_config": {"mtp_num_hidden_layers": 1}}"#).has_mtp);
        let none = tempfile::tempdir().unwrap();
        assert_eq!(DrafterFacts::read(none.path()).unwrap(), DrafterFacts::default());
    }
}
