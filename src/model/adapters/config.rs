//! `adapter_config.json` of PEFT: `peft.LoraConfig`.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::patterns::{Pattern, Targets, is_end};
use super::{AdapterError, AdapterFiles};
use crate::model_files::ModelFileError;

/// The fields that the results depend on.
#[derive(Debug)]
pub(super) struct LoraConfig {
    r: usize,
    lora_alpha: f64,
    use_rslora: bool,
    targets: Targets,
    /// Parameters, by the ends of their names: experts.
    parameters: Vec<String>,
    rank_pattern: Vec<(Pattern, usize)>,
    alpha_pattern: Vec<(Pattern, f64)>,
    /// Whether the output layer has the matrices of the embedding.
    ensure_weight_tying: bool,
    /// The version that wrote the file. Versions before 0.18 do not write theirs.
    peft_version: Option<String>,
}

/// The file, with the defaults of `peft.LoraConfig`.
#[derive(Debug, Deserialize)]
struct Raw {
    #[serde(default)]
    peft_type: Value,
    #[serde(default = "default_rank")]
    r: usize,
    #[serde(default = "default_alpha")]
    lora_alpha: f64,
    #[serde(default)]
    use_rslora: Option<bool>,
    #[serde(default)]
    target_modules: Value,
    #[serde(default)]
    exclude_modules: Value,
    #[serde(default)]
    target_parameters: Option<Vec<String>>,
    #[serde(default)]
    rank_pattern: Option<Map<String, Value>>,
    #[serde(default)]
    alpha_pattern: Option<Map<String, Value>>,
    #[serde(default)]
    ensure_weight_tying: Option<bool>,
    #[serde(default)]
    peft_version: Option<String>,
    #[serde(flatten)]
    others: Map<String, Value>,
}

fn default_rank() -> usize {
    8
}

fn default_alpha() -> f64 {
    8.0
}

/// Fields that change the results in a way that is not computed here, and what is accepted.
const REFUSED: [(&str, &str); 12] = [
    ("use_dora", "false (DoRA is not computed; merge the adapter into its model)"),
    ("lora_bias", "false"),
    ("use_qalora", "false"),
    ("use_bdlora", "null"),
    ("layer_replication", "null"),
    ("alora_invocation_tokens", "null"),
    ("trainable_token_indices", "null"),
    ("arrow_config", "null"),
    ("kasa_config", "null"),
    ("velora_config", "null"),
    ("monteclora_config", "null"),
    ("kappa_tune_config", "null"),
];

/// Initial weights that also change the base model.
const CHANGES_BASE: [&str; 5] = ["pissa", "olora", "corda", "loftq", "lora_ga"];

impl LoraConfig {
    /// Reads and checks the config of `files`.
    ///
    /// # Errors
    /// [`AdapterError::File`] and [`AdapterError::Config`].
    pub(super) fn read(files: &AdapterFiles) -> Result<Self, AdapterError> {
        let path = &files.config_path;
        let invalid = ModelFileError::invalid(path, "adapter config");
        let raw: Raw = serde_json::from_slice(&files.config)
            .map_err(|error| AdapterError::from(invalid(error.to_string())))?;
        check(path, &raw)?;
        let field = |field, value: &str, accepted| refused(path, field, value.to_owned(), accepted);
        let pattern = |name: &str, key: &str| {
            Pattern::of_key(key).map_err(|why| invalid(format!("{name}: `{key}`: {why}")))
        };
        let mut rank_pattern = Vec::new();
        for (key, value) in raw.rank_pattern.iter().flatten() {
            let rank = value.as_u64().filter(|rank| *rank > 0);
            let rank = rank
                .ok_or_else(|| field("rank_pattern", &value.to_string(), "ranks of at least 1"))?;
            rank_pattern.push((pattern("rank_pattern", key)?, rank as usize));
        }
        let mut alpha_pattern = Vec::new();
        for (key, value) in raw.alpha_pattern.iter().flatten() {
            let alpha = value.as_f64();
            let alpha =
                alpha.ok_or_else(|| field("alpha_pattern", &value.to_string(), "numbers"))?;
            alpha_pattern.push((pattern("alpha_pattern", key)?, alpha));
        }
        let targets = Targets::new(&raw.target_modules, &raw.exclude_modules)
            .map_err(|why| AdapterError::from(invalid(why)))?;
        Ok(Self {
            r: raw.r,
            lora_alpha: raw.lora_alpha,
            // As in Python, null is false.
            use_rslora: raw.use_rslora.unwrap_or(false),
            targets,
            parameters: raw.target_parameters.unwrap_or_default(),
            rank_pattern,
            alpha_pattern,
            ensure_weight_tying: raw.ensure_weight_tying.unwrap_or(false),
            peft_version: raw.peft_version,
        })
    }

    /// Returns the rank of the matrices of `module`.
    pub(super) fn rank(&self, module: &str) -> usize {
        let own = self.rank_pattern.iter().find(|(pattern, _)| pattern.matches(module));
        own.map_or(self.r, |(_, rank)| *rank)
    }

    /// Returns the factor of the product of `module`: alpha by the rank, or by its root.
    pub(super) fn scale(&self, module: &str) -> f32 {
        let own = self.alpha_pattern.iter().find(|(pattern, _)| pattern.matches(module));
        let alpha = own.map_or(self.lora_alpha, |(_, alpha)| *alpha);
        let rank = self.rank(module) as f64;
        (alpha / if self.use_rslora { rank.sqrt() } else { rank }) as f32
    }

    /// Returns the version of PEFT that wrote the file, if the file has it.
    pub(super) fn peft_version(&self) -> Option<&str> {
        self.peft_version.as_deref()
    }

    /// Returns whether the output layer has the matrices of the embedding, which it shares.
    pub(super) fn ties_weights(&self) -> bool {
        self.ensure_weight_tying
    }

    /// Returns whether `target_parameters` names a parameter.
    pub(super) fn has_parameter(&self, name: &str) -> bool {
        self.parameters.iter().any(|end| is_end(name, end))
    }

    /// Returns whether `target_modules` names `module`.
    pub(super) fn has_target(&self, module: &str) -> bool {
        self.targets.have(module)
    }
}

/// Rejects configs whose results are not computed here.
fn check(path: &Path, raw: &Raw) -> Result<(), AdapterError> {
    // Programs other than PEFT leave it out. vLLM does not read it.
    if !raw.peft_type.is_null() && raw.peft_type.as_str() != Some("LORA") {
        return Err(refused(path, "peft_type", raw.peft_type.to_string(), "LORA"));
    }
    if raw.r == 0 {
        return Err(refused(path, "r", "0".to_owned(), "at least 1"));
    }
    if !raw.lora_alpha.is_finite() {
        return Err(refused(path, "lora_alpha", raw.lora_alpha.to_string(), "a finite number"));
    }
    let other = |name: &str| raw.others.get(name).filter(|value| !is_unset(value));
    if let Some(bias) = other("bias").filter(|bias| bias.as_str() != Some("none")) {
        return Err(refused(path, "bias", bias.to_string(), "\"none\""));
    }
    for (name, accepted) in REFUSED {
        if let Some(value) = other(name) {
            return Err(refused(path, name, value.to_string(), accepted));
        }
    }
    let initial = other("init_lora_weights").and_then(Value::as_str).unwrap_or_default();
    if CHANGES_BASE.iter().any(|name| initial.to_lowercase().starts_with(name)) {
        let accepted = "initial weights that leave the base model as it is; convert the adapter \
                        with `path_initial_model_for_weight_conversion` of peft";
        return Err(refused(path, "init_lora_weights", initial.to_owned(), accepted));
    }
    Ok(())
}

/// Returns whether a field has a value that switches its feature off.
fn is_unset(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(values) => values.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

fn refused(
    path: &Path,
    field: &'static str,
    value: String,
    accepted: &'static str,
) -> AdapterError {
    AdapterError::Config { path: path.to_owned(), field, value, accepted }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(config: Value) -> LoraConfig {
        let files = AdapterFiles {
            config_path: "adapter_config.json".into(),
            config: config.to_string().into_bytes(),
            weights_path: "adapter_model.safetensors".into(),
            weights: Vec::new(),
        };
        LoraConfig::read(&files).unwrap()
    }

    /// The formulas of `peft.tuners.lora.LoraLayer.update_layer`: alpha by the rank, or by its root
    /// with `use_rslora`, for which null is false.
    #[test]
    fn the_scale_is_pefts() {
        let scale = |use_rslora: Value| {
            let config = json!({"r": 16, "lora_alpha": 8, "use_rslora": use_rslora,
                "rank_pattern": {"q_proj": 4}, "alpha_pattern": {"k_proj": 2}});
            let config = read(config);
            ["q_proj", "k_proj", "v_proj"].map(|name| config.scale(&format!("model.{name}")))
        };
        assert_eq!(scale(Value::Null), [2.0, 0.125, 0.5]);
        assert_eq!(scale(json!(false)), [2.0, 0.125, 0.5]);
        assert_eq!(scale(json!(true)), [4.0, 0.5, 2.0]);
    }
}
