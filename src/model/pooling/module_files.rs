//! The files of single modules of sentence-transformers: a folder each, with its `config.json`.

use std::{
    io,
    path::{Path, PathBuf},
};

use serde_json::{Map, Value};

use super::{
    Dense, DenseActivation, DenseNorm, LayerWeights, LogitScore, Pooling, Poolings, Shortcut,
    Stage, WeightPooling, module_weights::ModuleWeights,
};
use crate::{
    model::{ConfigError, ModelError},
    model_files::{self, ModelFileError},
    weights::WeightsError,
};

const CONFIG: &str = "config.json";
/// The poolings: their fields, in the order in which their vectors are joined, and their names in
/// newer files.
const POOLINGS: [(&str, &str, Pooling); 6] = [
    ("pooling_mode_cls_token", "cls", Pooling::Cls),
    ("pooling_mode_max_tokens", "max", Pooling::Max),
    ("pooling_mode_mean_tokens", "mean", Pooling::Mean),
    ("pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens", Pooling::MeanSqrtLen),
    ("pooling_mode_weightedmean_tokens", "weightedmean", Pooling::WeightedMean),
    ("pooling_mode_lasttoken", "lasttoken", Pooling::Last),
];
const POOLING_NAMES: &str =
    "one or more of cls, max, mean, mean_sqrt_len_tokens, weightedmean and lasttoken";
const VECTORS: &str = "sentence_embedding";
const TOKENS: &str = "token_embeddings";

/// The fields of a module.
pub(super) struct ModuleFile {
    path: PathBuf,
    fields: Map<String, Value>,
}

impl ModuleFile {
    /// Reads the file of a module's folder.
    pub(super) fn read(folder: &Path) -> Result<Self, ConfigError> {
        let path = folder.join(CONFIG);
        Self::read_if_there(folder)?.ok_or_else(|| {
            let error = io::Error::from(io::ErrorKind::NotFound);
            ModelFileError::read(&path)(error).into()
        })
    }

    /// Does the same for a module that may have no file.
    pub(super) fn read_if_there(folder: &Path) -> Result<Option<Self>, ConfigError> {
        let path = folder.join(CONFIG);
        match json(&path)? {
            None => Ok(None),
            Some(Value::Object(fields)) => Ok(Some(Self { path, fields })),
            Some(other) => Err(invalid(&path, "", &other, "an object")),
        }
    }

    fn get(&self, field: &str) -> Option<&Value> {
        self.fields.get(field).filter(|value| !value.is_null())
    }

    fn invalid(&self, field: &str, expected: &str) -> ConfigError {
        invalid(&self.path, field, self.fields.get(field).unwrap_or(&Value::Null), expected)
    }

    fn flag(&self, field: &str, default: bool) -> Result<bool, ConfigError> {
        let value = self.get(field).map_or(Some(default), Value::as_bool);
        value.ok_or_else(|| self.invalid(field, "true or false"))
    }

    fn size(&self, field: &str) -> Result<usize, ConfigError> {
        let value = self.get(field).and_then(Value::as_u64);
        let value = value.and_then(|size| usize::try_from(size).ok());
        let value = value.filter(|size| (1..=1 << 24).contains(size));
        value.ok_or_else(|| self.invalid(field, "a size from 1 to 16777216"))
    }

    /// Returns the poolings of a `Pooling`. Without any, it is the mean.
    pub(super) fn pooling(&self) -> Result<Poolings, ConfigError> {
        const MODE: &str = "pooling_mode";
        if let Some(mode) = self.get(MODE) {
            let names = match mode {
                Value::Array(names) => names.iter().collect(),
                name => vec![name],
            };
            let known = |name: &Value| {
                let found = POOLINGS.iter().find(|(_, known, _)| name == known);
                found.map(|(.., pooling)| *pooling)
            };
            let poolings: Option<Vec<Pooling>> = names.into_iter().map(known).collect();
            return poolings
                .and_then(Poolings::new)
                .ok_or_else(|| self.invalid(MODE, POOLING_NAMES));
        }
        let mut poolings = Vec::new();
        for (field, _, pooling) in POOLINGS {
            poolings.extend(self.flag(field, false)?.then_some(pooling));
        }
        Ok(Poolings::new(poolings).unwrap_or_else(|| crate::config::SequencePooling::Mean.into()))
    }

    /// Returns whether a `Pooling` leaves out the tokens of a prompt before the text.
    pub(super) fn excludes_prompt(&self) -> Result<bool, ConfigError> {
        Ok(!self.flag("include_prompt", true)?)
    }

    /// Returns the pooling of a `SpladePooling`.
    pub(super) fn weight_pooling(&self) -> Result<WeightPooling, ConfigError> {
        let choice = |field: &str, default: &str, other: &str| match self.get(field) {
            None => Ok(false),
            Some(name) if name == default => Ok(false),
            Some(name) if name == other => Ok(true),
            Some(_) => Err(self.invalid(field, &format!("{default:?} or {other:?}"))),
        };
        Ok(WeightPooling {
            sums: choice("pooling_strategy", "max", "sum")?,
            is_twice: choice("activation_function", "relu", "log1p_relu")?,
        })
    }

    /// Reads a `WeightedLayerPooling` from its folder.
    pub(super) fn layer_weights(&self, folder: &Path) -> Result<LayerWeights, ModelError> {
        const START: &str = "layer_start";
        const WEIGHTS: &str = "layer_weights";
        let count = match self.get("num_hidden_layers") {
            None => 12,
            Some(_) => self.size("num_hidden_layers")?,
        };
        let start = self.get(START).map_or(Some(4), Value::as_u64);
        let start = start.and_then(|start| usize::try_from(start).ok());
        let start = start.filter(|start| *start <= count);
        let start = start.ok_or_else(|| self.invalid(START, "at most num_hidden_layers"))?;
        let checkpoint = ModuleWeights::open(folder)?;
        let mut weights = checkpoint.values(WEIGHTS, &[count + 1 - start])?;
        let sum: f32 = weights.iter().sum();
        if !(sum.is_finite() && sum != 0.0) {
            let reason = format!("their sum is {sum}; expected another number than 0");
            let (path, tensor) = (checkpoint.path_of(WEIGHTS).to_owned(), WEIGHTS.to_owned());
            return Err(WeightsError::Value { path, tensor, reason }.into());
        }
        weights.iter_mut().for_each(|weight| *weight /= sum);
        checkpoint.require_unchanged()?;
        Ok(LayerWeights { start, weights })
    }

    /// Returns the texts of the tokens that a `MultiVectorMask` leaves out of documents.
    pub(super) fn skipped_words(&self) -> Result<Vec<String>, ConfigError> {
        const WORDS: &str = "skiplist_words";
        const TASKS: &str = "skiplist_tasks";
        const KEPT: &str = "keep_only_token_ids";
        if self.get(KEPT).is_some() {
            return Err(self.invalid(KEPT, "null"));
        }
        let Some(words) = self.get(WORDS) else { return Ok(Vec::new()) };
        let words = texts(words).ok_or_else(|| self.invalid(WORDS, "a list of texts"))?;
        let of_documents = [Value::from("document"), Value::from(vec!["document"])];
        match self.get(TASKS) {
            Some(tasks) if !words.is_empty() && !of_documents.contains(tasks) => {
                Err(self.invalid(TASKS, "[\"document\"]"))
            }
            _ => Ok(words),
        }
    }

    /// Returns the tokens of a `LogitScore`.
    pub(super) fn logit_score(&self) -> Result<LogitScore, ConfigError> {
        const YES: &str = "true_token_id";
        let token = |field: &str| {
            let id = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
            let id = self.get(field).map(|value| id(value).ok_or(()));
            id.transpose().map_err(|()| self.invalid(field, "a token id"))
        };
        let yes = token(YES)?.ok_or_else(|| self.invalid(YES, "a token id"))?;
        Ok(LogitScore { yes, no: token("false_token_id")? })
    }

    /// Checks that the module's inputs and outputs are the vectors that it gets here: pooled ones,
    /// or those of tokens if nothing was pooled.
    pub(super) fn require_vectors(&self, is_pooled: bool) -> Result<(), ConfigError> {
        for field in ["module_input_name", "module_output_name"] {
            let is_known = match self.get(field) {
                None => true,
                Some(name) if is_pooled => name == VECTORS,
                Some(name) => name == VECTORS || name == TOKENS,
            };
            if !is_known {
                return Err(self.invalid(field, if is_pooled { VECTORS } else { TOKENS }));
            }
        }
        Ok(())
    }

    /// Reads a `Dense` from its folder.
    pub(super) fn dense(&self, folder: &Path) -> Result<Stage, ModelError> {
        const ACTIVATION: &str = "activation_function";
        let (inputs, outputs) = (self.size("in_features")?, self.size("out_features")?);
        let name = self.get(ACTIVATION).map_or(Some("Tanh"), Value::as_str);
        let class = name.and_then(|name| name.rsplit('.').next());
        let activation = class.and_then(DenseActivation::of_torch);
        let activation =
            activation.ok_or_else(|| self.invalid(ACTIVATION, DenseActivation::TORCH))?;
        let checkpoint = ModuleWeights::open(folder)?;
        let plain = |module: &str, has_bias: bool| {
            let weight = checkpoint.values(&format!("{module}.weight"), &[outputs, inputs])?;
            let bias = match has_bias {
                true => checkpoint.values(&format!("{module}.bias"), &[outputs])?,
                false => Vec::new(),
            };
            let activation = DenseActivation::Identity;
            Ok::<_, ModelError>(Dense { weight, bias, inputs, activation, norm: None })
        };
        let layer = Dense { activation, ..plain("linear", self.flag("bias", true)?)? };
        let shortcut = match self.flag("use_residual", false)? {
            false => Shortcut::None,
            true if inputs == outputs => Shortcut::Inputs,
            true => Shortcut::Projected(plain("residual", false)?),
        };
        checkpoint.require_unchanged()?;
        Ok(Stage::Dense(layer, shortcut))
    }
}

/// Reads a `LayerNorm` from its folder. Its number beside the variance is torch's.
pub(super) fn layer_norm(folder: &Path) -> Result<Stage, ModelError> {
    let size = [ModuleFile::read(folder)?.size("dimension")?];
    let checkpoint = ModuleWeights::open(folder)?;
    let weight = checkpoint.values("norm.weight", &size)?;
    let bias = checkpoint.values("norm.bias", &size)?;
    checkpoint.require_unchanged()?;
    Ok(Stage::Norm(DenseNorm { weight, bias, eps: 1e-5 }))
}

/// Returns the texts of a list of texts.
pub(super) fn texts(value: &Value) -> Option<Vec<String>> {
    value.as_array()?.iter().map(|text| text.as_str().map(str::to_owned)).collect()
}

/// Reads a JSON file, if there is one.
pub(super) fn json(path: &Path) -> Result<Option<Value>, ConfigError> {
    if !model_files::exists(path) {
        return Ok(None);
    }
    let text = model_files::read(path).map_err(ModelFileError::read(path))?;
    let read = serde_json::from_slice(&text);
    read.map(Some)
        .map_err(|error| ConfigError::Json { path: path.to_owned(), reason: error.to_string() })
}

pub(super) fn invalid(path: &Path, field: &str, value: &Value, expected: &str) -> ConfigError {
    let value: String = value.to_string().chars().take(200).collect();
    let (path, field) = (PathBuf::from(path), field.to_owned());
    ConfigError::Invalid { path, field, value, expected: expected.to_owned() }
}
