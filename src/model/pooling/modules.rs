//! The files of sentence-transformers: `modules.json`, the folders that it names,
//! `sentence_bert_config.json` and `config_sentence_transformers.json`.

use std::{
    io,
    path::{Path, PathBuf},
};

use serde_json::{Map, Value};

use super::{Dense, DenseActivation};
use crate::{
    config::SequencePooling,
    model::{ConfigError, ModelError},
    model_files::{self, ModelFileError},
    weights::Checkpoint,
};

const MODULES: &str = "modules.json";
const CONFIG: &str = "config.json";
const MODULE_KINDS: &str = "Transformer, MLMTransformer, Pooling, SpladePooling, Dense or Normalize of \
     sentence_transformers";

/// The poolings of `1_Pooling/config.json`, by their fields and their names in newer files.
const POOLINGS: [(&str, &str, SequencePooling); 3] = [
    ("pooling_mode_cls_token", "cls", SequencePooling::Cls),
    ("pooling_mode_mean_tokens", "mean", SequencePooling::Mean),
    ("pooling_mode_lasttoken", "lasttoken", SequencePooling::Last),
];
/// The other poolings, which are not computed.
const OTHER_POOLINGS: [&str; 3] = [
    "pooling_mode_max_tokens",
    "pooling_mode_mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens",
];

/// The parts of a model that sentence-transformers puts behind its hidden states.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SentenceTransformers {
    /// The pooling, if there is a module for it.
    pub pooling: Option<SequencePooling>,
    /// Whether weights of the vocabulary are pooled to a sparse vector.
    pub is_sparse: bool,
    /// Layers behind the pooling, in their order.
    pub dense: Vec<Dense>,
    /// Whether vectors are normalized.
    pub normalizes: bool,
    /// The longest text in tokens.
    pub max_seq_length: Option<usize>,
    /// Texts before a text, by its kind.
    pub prompts: Vec<(String, String)>,
}

impl SentenceTransformers {
    /// Reads the files of the folder `model`. Returns `None` if it has no `modules.json`.
    ///
    /// # Errors
    /// [`ModelError`] names the file and the field at fault, also for modules that are not
    /// supported.
    pub fn read(model: &Path) -> Result<Option<Self>, ModelError> {
        let path = model.join(MODULES);
        let Some(modules) = json(&path)? else { return Ok(None) };
        let modules = modules.as_array().ok_or_else(|| invalid(&path, "", &modules, "a list"))?;
        let mut this = Self::default();
        for module in modules {
            this.add(model, &path, module)?;
        }
        this.read_limits(model)?;
        this.prompts = prompts(model)?;
        Ok(Some(this))
    }

    fn add(&mut self, model: &Path, path: &Path, module: &Value) -> Result<(), ModelError> {
        let kind = module.get("type").and_then(Value::as_str).unwrap_or_default();
        let name = module.get("path").and_then(Value::as_str).unwrap_or_default();
        // A name with a folder in it could lead out of the model's folder.
        let is_plain = Path::new(name).file_name().is_some_and(|file| file == name);
        if !is_plain && !name.is_empty() {
            return Err(invalid(path, "path", &name.into(), "the name of a folder").into());
        }
        let folder = model.join(name);
        match kind.rsplit('.').next().unwrap_or_default() {
            "Transformer" | "MLMTransformer" => {}
            "SpladePooling" => {
                sparse_pooling(&folder.join(CONFIG))?;
                self.is_sparse = true;
            }
            "Pooling" => self.pooling = Some(pooling(&folder.join(CONFIG))?),
            "Dense" if self.normalizes => {
                let expected = "no Dense after a Normalize";
                return Err(invalid(path, "type", &kind.into(), expected).into());
            }
            "Dense" => self.dense.push(dense(&folder)?),
            "Normalize" => self.normalizes = true,
            _ => return Err(invalid(path, "type", &kind.into(), MODULE_KINDS).into()),
        }
        Ok(())
    }

    fn read_limits(&mut self, model: &Path) -> Result<(), ConfigError> {
        let path = model.join("sentence_bert_config.json");
        let Some(config) = json(&path)? else { return Ok(()) };
        if let Some(value) = config.get("max_seq_length").filter(|value| !value.is_null()) {
            let length = value.as_u64().and_then(|length| usize::try_from(length).ok());
            let length = length.filter(|length| *length > 0);
            let wrong = || invalid(&path, "max_seq_length", value, "a positive integer");
            self.max_seq_length = Some(length.ok_or_else(wrong)?);
        }
        Ok(())
    }
}

/// Reads the configuration of a pooling.
fn pooling(path: &Path) -> Result<SequencePooling, ConfigError> {
    let config = object(path)?;
    if let Some(value) = config.get("include_prompt").filter(|value| **value == Value::Bool(false))
    {
        return Err(invalid(path, "include_prompt", value, "true: all tokens are pooled"));
    }
    let is_on = |field: &str| config.get(field) == Some(&Value::Bool(true));
    if let Some(field) = OTHER_POOLINGS.into_iter().find(|field| is_on(field)) {
        let expected = "false; supported are cls, mean and lasttoken";
        return Err(invalid(path, field, &Value::Bool(true), expected));
    }
    if let Some(mode) = config.get("pooling_mode") {
        let known = POOLINGS.iter().find(|(_, name, _)| mode == name);
        let wrong = || invalid(path, "pooling_mode", mode, "cls, mean or lasttoken");
        return known.map(|(.., pooling)| *pooling).ok_or_else(wrong);
    }
    let mut on = POOLINGS.iter().filter(|(field, ..)| is_on(field));
    match (on.next(), on.next()) {
        (Some((.., pooling)), None) => Ok(*pooling),
        (None, _) => Err(ConfigError::Missing {
            path: path.to_owned(),
            field: "pooling_mode_mean_tokens".to_owned(),
            expected: "one pooling that is true".to_owned(),
        }),
        (Some(_), Some((field, ..))) => {
            Err(invalid(path, field, &Value::Bool(true), "one pooling alone that is true"))
        }
    }
}

/// Checks that a sparse pooling takes the largest weight of each token of the vocabulary.
fn sparse_pooling(path: &Path) -> Result<(), ConfigError> {
    let config = object(path)?;
    for (field, expected) in [("pooling_strategy", "max"), ("activation_function", "relu")] {
        if let Some(value) = config.get(field).filter(|value| *value != expected) {
            return Err(invalid(path, field, value, &format!("{expected:?}")));
        }
    }
    Ok(())
}

/// Reads a dense layer from its folder.
fn dense(folder: &Path) -> Result<Dense, ModelError> {
    let path = folder.join(CONFIG);
    let config = object(&path)?;
    let size = |field: &'static str| {
        let value = config.get(field).and_then(Value::as_u64);
        let value = value.and_then(|size| usize::try_from(size).ok());
        let value = value.filter(|size| (1..=1 << 24).contains(size));
        let given = config.get(field).unwrap_or(&Value::Null);
        value.ok_or_else(|| invalid(&path, field, given, "a size from 1 to 16777216"))
    };
    let (inputs, outputs) = (size("in_features")?, size("out_features")?);
    let name = config.get("activation_function").and_then(Value::as_str);
    let class = name.and_then(|name| name.rsplit('.').next()).unwrap_or("Tanh");
    let activation = DenseActivation::from_name(class).ok_or_else(|| {
        let expected = "Identity, Tanh, ReLU, GELU or SiLU of torch";
        invalid(&path, "activation_function", &class.into(), expected)
    })?;
    let checkpoint = Checkpoint::open(folder)?;
    let values = |name: &str, shape: &[usize]| -> Result<Vec<f32>, ModelError> {
        Ok(checkpoint.tensor(name, shape)?.values().view().to_f32())
    };
    let weight = values("linear.weight", &[outputs, inputs])?;
    let bias = match config.get("bias") {
        Some(Value::Bool(false)) => Vec::new(),
        _ => values("linear.bias", &[outputs])?,
    };
    checkpoint.require_unchanged()?;
    Ok(Dense { weight, bias, inputs, activation, norm: None })
}

/// Reads the prompts of `config_sentence_transformers.json`.
fn prompts(model: &Path) -> Result<Vec<(String, String)>, ConfigError> {
    let path = model.join("config_sentence_transformers.json");
    let Some(config) = json(&path)? else { return Ok(Vec::new()) };
    let prompts = config.get("prompts").and_then(Value::as_object);
    let pairs = prompts.into_iter().flatten().map(|(kind, prompt)| match prompt {
        Value::String(prompt) => Ok((kind.clone(), prompt.clone())),
        Value::Null => Ok((kind.clone(), String::new())),
        other => Err(invalid(&path, &format!("prompts.{kind}"), other, "a text")),
    });
    pairs.collect()
}

/// Reads a file that must be a JSON object.
fn object(path: &Path) -> Result<Map<String, Value>, ConfigError> {
    match json(path)? {
        Some(Value::Object(object)) => Ok(object),
        Some(other) => Err(invalid(path, "", &other, "an object")),
        None => {
            let error = io::Error::from(io::ErrorKind::NotFound);
            Err(ModelFileError::read(path)(error).into())
        }
    }
}

/// Reads a JSON file, if there is one.
fn json(path: &Path) -> Result<Option<Value>, ConfigError> {
    if !model_files::exists(path) {
        return Ok(None);
    }
    let text = model_files::read(path).map_err(ModelFileError::read(path))?;
    let read = serde_json::from_slice(&text);
    read.map(Some)
        .map_err(|error| ConfigError::Json { path: path.to_owned(), reason: error.to_string() })
}

fn invalid(path: &Path, field: &str, value: &Value, expected: &str) -> ConfigError {
    let value: String = value.to_string().chars().take(200).collect();
    let (path, field) = (PathBuf::from(path), field.to_owned());
    ConfigError::Invalid { path, field, value, expected: expected.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(files: &[(&str, &str)]) -> Result<Option<SentenceTransformers>, String> {
        let folder = tempfile::TempDir::new().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        SentenceTransformers::read(folder.path()).map_err(|error| error.to_string())
    }

    const TWO: &str = r#"[{"path": "", "type": "sentence_transformers.models.Transformer"},
        {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}]"#;

    #[test]
    fn a_folder_without_modules_is_none() {
        assert_eq!(read(&[]), Ok(None));
    }

    #[test]
    fn the_pooling_is_the_one_that_is_on() {
        let mean = r#"{"pooling_mode_mean_tokens": true, "pooling_mode_cls_token": false}"#;
        let model = read(&[(MODULES, TWO), ("1_Pooling/config.json", mean)]).unwrap().unwrap();
        assert_eq!((model.pooling, model.normalizes), (Some(SequencePooling::Mean), false));
        let named = r#"{"pooling_mode": "lasttoken"}"#;
        let model = read(&[(MODULES, TWO), ("1_Pooling/config.json", named)]).unwrap().unwrap();
        assert_eq!(model.pooling, Some(SequencePooling::Last));
    }

    #[test]
    fn what_is_not_computed_is_refused_by_its_name() {
        let refused = |pooling: &str| {
            read(&[(MODULES, TWO), ("1_Pooling/config.json", pooling)]).unwrap_err()
        };
        assert!(refused(r#"{"pooling_mode_max_tokens": true}"#).contains("max_tokens"));
        assert!(refused(r#"{"pooling_mode": "max"}"#).contains("lasttoken"));
        assert!(refused("{}").contains("one pooling"));
        let both = r#"{"pooling_mode_mean_tokens": true, "pooling_mode_cls_token": true}"#;
        assert!(refused(both).contains("alone"));
        let outside = r#"[{"path": "../x", "type": "a.Pooling"}]"#;
        assert!(read(&[(MODULES, outside)]).unwrap_err().contains("the name of a folder"));
        let other = r#"[{"path": "1_CNN", "type": "sentence_transformers.models.CNN"}]"#;
        assert!(read(&[(MODULES, other)]).unwrap_err().contains("CNN"));
        assert!(read(&[(MODULES, TWO)]).unwrap_err().contains("1_Pooling"), "no file");
    }
}
