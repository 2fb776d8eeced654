//! The files of sentence-transformers: `modules.json`, the folders that it names,
//! `sentence_bert_config.json` and `config_sentence_transformers.json`.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{
    ClassifierActivation, Poolings, Stage, WeightPooling,
    module_files::{self, ModuleFile, invalid, json},
    routes::ModuleLists,
};
use crate::{
    config::SequencePooling,
    model::{ConfigError, ModelError},
    model_files, module_list,
};

const MODULE_KINDS: &str = "Transformer, MLMTransformer, WeightedLayerPooling, Pooling, \
     SpladePooling, Dense, LayerNorm, Dropout, Normalize, MultiVectorMask or LogitScore of \
     sentence_transformers, or StaticEmbedding at the first place";

/// The texts that PyLate leaves out of documents by default.
const PUNCTUATION: &str = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";

/// The parts of a model that sentence-transformers puts behind its hidden states.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SentenceTransformers {
    /// The pooling, if there is a module for it.
    pub pooling: Option<Poolings>,
    /// The weights of the hidden states of layers, whose mean is pooled, if a module has them.
    pub layer_weights: Option<LayerWeights>,
    /// The folder of the table that stands in the place of a transformer (`StaticEmbedding`).
    pub table: Option<PathBuf>,
    /// Whether the tokens of a prompt before a text are not pooled with it.
    pub excludes_prompt: bool,
    /// The pooling of weights of the vocabulary to a sparse vector, if there is a module for it.
    pub weights: Option<WeightPooling>,
    /// The steps behind the pooling, in their order, without a last division by the length.
    pub stages: Vec<Stage>,
    /// Whether vectors are divided by their lengths at last.
    pub normalizes: bool,
    /// The tokens of documents that a comparison of vectors of tokens leaves out, as texts.
    pub skipped_words: Vec<String>,
    /// The tokens whose logits are the score of a pair, if there is a module for them.
    pub logit_score: Option<LogitScore>,
    /// The function from logits to scores of a cross-encoder.
    pub activation: Option<ClassifierActivation>,
    /// The longest text in tokens.
    pub max_seq_length: Option<usize>,
    /// The same by default, of a model without [`SentenceTransformers::max_seq_length`].
    pub tokenizer_limit: Option<usize>,
    /// Texts before a text, by its kind.
    pub prompts: Vec<(String, String)>,
    /// Number of elements that vectors keep by default.
    pub truncate_dim: Option<u32>,
}

/// The weights of the hidden states before some layers and behind the last one. Their sum is 1.
#[derive(Debug, Clone, PartialEq)]
pub struct LayerWeights {
    /// The first layer whose inputs count.
    pub start: usize,
    /// A weight for the inputs of each layer from that on, and one for the last hidden states.
    pub weights: Vec<f32>,
}

/// A score by the logits of the next token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogitScore {
    /// The token of the answer yes.
    pub yes: u32,
    /// The token of the answer no, whose logit is subtracted.
    pub no: Option<u32>,
}

impl SentenceTransformers {
    /// Reads the files of the folder `model`. Returns `None` if it has no `modules.json` and begins
    /// no route of a `Router`.
    ///
    /// # Errors
    /// [`ModelError`] names the file and the field at fault, also for modules that are not
    /// supported.
    pub fn read(model: &Path) -> Result<Option<Self>, ModelError> {
        let Some(ModuleLists { folder, path, modules }) = ModuleLists::read(model)? else {
            return Ok(None);
        };
        let mut this = Self::default();
        for (index, module) in modules.iter().enumerate() {
            this.add(&folder, &path, module, index == 0)?;
        }
        let mut types = modules.iter().filter_map(|module| module.get("type")?.as_str());
        let is_pylate = types.any(|kind| kind.starts_with("pylate."));
        require_token_vectors(model)?;
        (this.max_seq_length, this.tokenizer_limit) = limits(model)?;
        this.read_settings(&folder, is_pylate)?;
        Ok(Some(this))
    }

    fn add(
        &mut self,
        model: &Path,
        path: &Path,
        module: &Value,
        is_first: bool,
    ) -> Result<(), ModelError> {
        let kind = module.get("type").and_then(Value::as_str).unwrap_or_default();
        let name = module.get("path").and_then(Value::as_str).unwrap_or_default();
        let name = module_list::plain(name);
        // A name with a folder in it could lead out of the model's folder.
        let is_plain = Path::new(name).file_name().is_some_and(|file| file == name);
        if !is_plain && !name.is_empty() {
            return Err(invalid(path, "path", &name.into(), "the name of a folder").into());
        }
        let folder = model.join(name);
        let refused = |expected: &str| invalid(path, "type", &kind.into(), expected);
        match kind.rsplit('.').next().unwrap_or_default() {
            "Transformer" | "MLMTransformer" | "Dropout" => {}
            "StaticEmbedding" if is_first => {
                self.pooling = Some(SequencePooling::Mean.into());
                self.table = Some(folder);
            }
            "WeightedLayerPooling" if self.pooling.is_some() => {
                return Err(refused("no WeightedLayerPooling behind a Pooling").into());
            }
            "WeightedLayerPooling" => {
                self.layer_weights = Some(ModuleFile::read(&folder)?.layer_weights(&folder)?);
            }
            "SpladePooling" => self.weights = Some(ModuleFile::read(&folder)?.weight_pooling()?),
            "Pooling" if self.pooling.is_some() => return Err(refused("one Pooling").into()),
            "Pooling" if !self.stages.is_empty() || self.normalizes => {
                return Err(refused("no Pooling behind a Dense, LayerNorm or Normalize").into());
            }
            "Pooling" => {
                let file = ModuleFile::read(&folder)?;
                self.pooling = Some(file.pooling()?);
                self.excludes_prompt = file.excludes_prompt()?;
            }
            "Dense" => {
                let file = ModuleFile::read(&folder)?;
                file.require_vectors(self.pooling.is_some())?;
                self.push(file.dense(&folder)?);
            }
            "LayerNorm" => self.push(module_files::layer_norm(&folder)?),
            "Normalize" => {
                if let Some(file) = ModuleFile::read_if_there(&folder)? {
                    file.require_vectors(self.pooling.is_some())?;
                }
                self.normalizes = true;
            }
            "MultiVectorMask" => self.skipped_words = ModuleFile::read(&folder)?.skipped_words()?,
            "LogitScore" => self.logit_score = Some(ModuleFile::read(&folder)?.logit_score()?),
            _ => return Err(refused(MODULE_KINDS).into()),
        }
        Ok(())
    }

    /// Adds a step behind those before it, which may divide by the length.
    fn push(&mut self, stage: Stage) {
        if std::mem::take(&mut self.normalizes) {
            self.stages.push(Stage::Normalize);
        }
        self.stages.push(stage);
    }

    /// Reads `config_sentence_transformers.json`. `is_pylate` says whether PyLate saved a module.
    fn read_settings(&mut self, model: &Path, is_pylate: bool) -> Result<(), ConfigError> {
        let path = model.join("config_sentence_transformers.json");
        let config = json(&path)?.unwrap_or_default();
        let prompts = config.get("prompts").and_then(Value::as_object);
        let pairs = prompts.into_iter().flatten().map(|(kind, prompt)| match prompt {
            Value::String(prompt) => Ok((kind.clone(), prompt.clone())),
            Value::Null => Ok((kind.clone(), String::new())),
            other => Err(invalid(&path, &format!("prompts.{kind}"), other, "a text")),
        });
        self.prompts = pairs.collect::<Result<_, _>>()?;
        const KEPT: &str = "truncate_dim";
        if let Some(kept) = config.get(KEPT).filter(|value| !value.is_null()) {
            let count = kept.as_u64().and_then(|count| u32::try_from(count).ok());
            let count = count.filter(|count| *count > 0);
            let wrong = || invalid(&path, KEPT, kept, "a positive integer");
            self.truncate_dim = Some(count.ok_or_else(wrong)?);
        }
        // The place of PyLate, which has no module for it. It has none for the division of tokens'
        // vectors by their lengths either.
        const SKIPPED: &str = "skiplist_words";
        let is_pylate = is_pylate || config.get("model_type").is_some_and(|kind| kind == "ColBERT");
        if is_pylate && self.pooling.is_none() {
            self.normalizes = true;
            if config.get(SKIPPED).is_none_or(Value::is_null) {
                self.skipped_words = PUNCTUATION.chars().map(String::from).collect();
            }
        }
        let words = config.get(SKIPPED).filter(|words| !words.is_null());
        if let Some(words) = words.filter(|_| self.skipped_words.is_empty()) {
            let wrong = || invalid(&path, SKIPPED, words, "a list of texts");
            self.skipped_words = module_files::texts(words).ok_or_else(wrong)?;
        }
        if let Some(function) = config.get("activation_fn").filter(|value| !value.is_null()) {
            let known = ClassifierActivation::from_torch(function);
            let wrong = || invalid(&path, "activation_fn", function, ClassifierActivation::TORCH);
            self.activation = Some(known.ok_or_else(wrong)?);
        }
        Ok(())
    }
}

/// The `model_type` of models of two towers, whose vectors of texts need no pooling.
const TWO_TOWERS: [&str; 2] = ["clip", "siglip"];

/// Refuses a `Transformer` that pools by itself: with the layer `pooler` of its class, which is not
/// computed here. Refuses one that returns other hidden states than the last ones. That of two
/// towers returns vectors.
fn require_token_vectors(model: &Path) -> Result<(), ConfigError> {
    const OUTPUT: &str = "module_output_name";
    const OF_TEXT: &str = "modality_config.text";
    const METHOD: &str = "method";
    const NAME: &str = "method_output_name";
    const STATES: [(&str, &[&str]); 2] =
        [(METHOD, &["forward"]), (NAME, &["last_hidden_state", "logits", "embeddings"])];
    const VECTORS: [(&str, &[&str]); 2] =
        [(METHOD, &["get_text_features"]), (NAME, &["pooler_output"])];
    let config = json(&model.join("config.json"))?.unwrap_or_default();
    let model_type = config.get("model_type").and_then(Value::as_str);
    let is_pair = model_type.is_some_and(|name| TWO_TOWERS.contains(&name));
    let (expected, other, fields) = match is_pair {
        true => ("\"sentence_embedding\"", "token_embeddings", VECTORS),
        false => ("\"token_embeddings\"", "sentence_embedding", STATES),
    };
    for name in model_files::SENTENCE_CONFIGS {
        let path = model.join(name);
        let config = json(&path)?.unwrap_or_default();
        if let Some(output) = config.get(OUTPUT).filter(|output| *output == other) {
            return Err(invalid(&path, OUTPUT, output, expected));
        }
        let Some(text) = config.pointer("/modality_config/text") else { continue };
        for (field, accepted) in fields {
            let value = match text.get(field) {
                Some(Value::Array(names)) if names.len() == 1 => &names[0],
                Some(value) => value,
                None => continue,
            };
            if !accepted.iter().any(|name| value == name) {
                let field = format!("{OF_TEXT}.{field}");
                return Err(invalid(&path, &field, value, &accepted.join(", ")));
            }
        }
    }
    Ok(())
}

/// Reads the longest text in tokens: `max_seq_length`, or else `model_max_length` of the tokenizer,
/// where sentence-transformers has it since its version 5.
fn limits(model: &Path) -> Result<(Option<usize>, Option<usize>), ConfigError> {
    for name in model_files::SENTENCE_CONFIGS {
        if let Some(length) = length(&model.join(name), "max_seq_length")? {
            return Ok((Some(length), None));
        }
    }
    Ok((None, length(&model.join("tokenizer_config.json"), "model_max_length")?))
}

/// Reads a length from a file, if there is one. Tokenizers without a limit have 30 digits.
fn length(path: &Path, field: &str) -> Result<Option<usize>, ConfigError> {
    const UNLIMITED: f64 = 1e9;
    let config = json(path)?.unwrap_or_default();
    let Some(value) = config.get(field).filter(|value| !value.is_null()) else { return Ok(None) };
    if value.as_f64().is_some_and(|length| length >= UNLIMITED) {
        return Ok(None);
    }
    let length = value.as_u64().and_then(|length| usize::try_from(length).ok());
    let length = length.filter(|length| *length > 0);
    length.ok_or_else(|| invalid(path, field, value, "a positive integer")).map(Some)
}

#[cfg(test)]
mod tests {
    use super::super::{Pooling, Shortcut};
    use super::*;

    const MODULES: &str = module_list::FILE;

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::TempDir::new().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        folder
    }

    fn read(files: &[(&str, &str)]) -> Result<Option<SentenceTransformers>, String> {
        let folder = folder(files);
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
        let expected = Some(Poolings::from(SequencePooling::Mean));
        assert_eq!((model.pooling, model.normalizes), (expected, false));
        let named = r#"{"pooling_mode": "lasttoken"}"#;
        let model = read(&[(MODULES, TWO), ("1_Pooling/config.json", named)]).unwrap().unwrap();
        assert_eq!(model.pooling, Some(SequencePooling::Last.into()));
    }

    #[test]
    fn poolings_that_are_on_are_joined_in_the_order_of_their_fields() {
        let read = |pooling: &str| {
            let files = [(MODULES, TWO), ("1_Pooling/config.json", pooling)];
            read(&files).map(|model| model.unwrap().pooling.unwrap())
        };
        let both = r#"{"pooling_mode_lasttoken": true, "pooling_mode_max_tokens": true,
            "pooling_mode_cls_token": true, "include_prompt": true}"#;
        let expected = vec![Pooling::Cls, Pooling::Max, Pooling::Last];
        assert_eq!(read(both), Ok(Poolings::new(expected).unwrap()));
        let listed = r#"{"pooling_mode": ["weightedmean", "mean_sqrt_len_tokens"]}"#;
        let expected = vec![Pooling::WeightedMean, Pooling::MeanSqrtLen];
        assert_eq!(read(listed), Ok(Poolings::new(expected).unwrap()));
        assert_eq!(read("{}"), Ok(SequencePooling::Mean.into()), "the default of the class");
        assert!(read(r#"{"pooling_mode": "median"}"#).unwrap_err().contains("weightedmean"));
        assert!(read(r#"{"pooling_mode": []}"#).unwrap_err().contains("pooling_mode"));
    }

    #[test]
    fn only_the_last_division_belongs_to_requests() {
        let modules = r#"[{"path": "", "type": "Transformer"}, {"path": "1", "type": "a.Pooling"},
            {"path": "2", "type": "a.Normalize"}, {"path": "3", "type": "a.LayerNorm"},
            {"path": "4", "type": "a.Dropout"}, {"path": "5", "type": "a.Normalize"}]"#;
        let mean = r#"{"pooling_mode": "mean", "include_prompt": false}"#;
        let norm = r#"{"dimension": 1}"#;
        let files = [(MODULES, modules), ("1/config.json", mean), ("3/config.json", norm)];
        let tensors = b"{\"norm.weight\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},\
            \"norm.bias\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}";
        let mut header = tensors.to_vec();
        header.resize(header.len().next_multiple_of(8), b' ');
        let mut weights = (header.len() as u64).to_le_bytes().to_vec();
        weights.extend(header.iter().chain(&[0; 8]));
        let folder = folder(&files);
        std::fs::write(folder.path().join("3/model.safetensors"), weights).unwrap();
        let model = SentenceTransformers::read(folder.path()).unwrap().unwrap();
        assert!(matches!(model.stages[..], [Stage::Normalize, Stage::Norm(_)]), "{model:?}");
        assert!(model.normalizes && model.excludes_prompt);
        assert!(!matches!(model.stages[0], Stage::Dense(_, Shortcut::None)));
    }

    #[test]
    fn a_limit_may_be_that_of_the_tokenizer() {
        let limit = |files: &[(&str, &str)]| {
            let mut all = vec![(MODULES, "[]")];
            all.extend(files);
            read(&all)
                .map(Option::unwrap)
                .map(|model| (model.max_seq_length, model.tokenizer_limit))
        };
        let tokenizer = ("tokenizer_config.json", r#"{"model_max_length": 256}"#);
        assert_eq!(limit(&[tokenizer, ("sentence_bert_config.json", "{}")]), Ok((None, Some(256))));
        let older = ("sentence_xlm-roberta_config.json", r#"{"max_seq_length": 128}"#);
        assert_eq!(limit(&[tokenizer, older]), Ok((Some(128), None)));
        let none = ("tokenizer_config.json", r#"{"model_max_length": 1e30}"#);
        assert_eq!(limit(&[none]), Ok((None, None)));
        let wrong = ("sentence_bert_config.json", r#"{"max_seq_length": "long"}"#);
        assert!(limit(&[wrong]).unwrap_err().contains("max_seq_length"));
    }

    #[test]
    fn a_cross_encoder_has_its_function_and_its_tokens() {
        let modules =
            r#"[{"path": "", "type": "Transformer"}, {"path": "1", "type": "LogitScore"}]"#;
        let score = ("1/config.json", r#"{"true_token_id": 7, "false_token_id": null}"#);
        let settings = "config_sentence_transformers.json";
        let of = |function: &str| {
            let function = format!(r#"{{"activation_fn": "torch.nn.modules.{function}"}}"#);
            read(&[(MODULES, modules), score, (settings, &function)]).map(Option::unwrap)
        };
        let model = of("linear.Identity").unwrap();
        assert_eq!(model.activation, Some(ClassifierActivation::Identity));
        assert_eq!(model.logit_score, Some(LogitScore { yes: 7, no: None }));
        assert!(of("activation.Tanh").unwrap_err().contains("activation_fn"));
    }

    /// PyLate divides vectors of tokens by their lengths without a module, and so does vLLM.
    #[test]
    fn vectors_of_pylate_have_the_length_one() {
        let settings = "config_sentence_transformers.json";
        let of = |modules: &str, text: &str| {
            let mean = ("1_Pooling/config.json", "{}");
            let model = read(&[(MODULES, modules), (settings, text), mean]).unwrap().unwrap();
            (model.normalizes, model.skipped_words.len())
        };
        let tokens = r#"[{"path": "", "type": "sentence_transformers.models.Transformer"}]"#;
        assert_eq!(of(tokens, r#"{"model_type": "ColBERT"}"#), (true, 32));
        let words = r#"{"model_type": "ColBERT", "skiplist_words": ["!", "?"]}"#;
        assert_eq!(of(tokens, words), (true, 2));
        assert_eq!(of(tokens, r#"{"model_type": "MultiVectorEncoder"}"#), (false, 0));
        assert_eq!(of(TWO, r#"{"model_type": "ColBERT"}"#), (false, 0), "it pools");
        let module = r#"[{"path": "", "type": "pylate.models.Transformer"}]"#;
        assert_eq!(of(module, "{}"), (true, 32));
    }

    #[test]
    fn vectors_may_keep_fewer_elements_by_default() {
        let settings = "config_sentence_transformers.json";
        let kept = |text: &str| {
            read(&[(MODULES, "[]"), (settings, text)]).map(|model| model.unwrap().truncate_dim)
        };
        assert_eq!(kept(r#"{"truncate_dim": 64}"#), Ok(Some(64)));
        assert_eq!(kept(r#"{"truncate_dim": null}"#), Ok(None));
        assert!(kept(r#"{"truncate_dim": 0}"#).unwrap_err().contains("truncate_dim"));
    }

    #[test]
    fn a_table_pools_by_the_mean() {
        let table =
            r#"[{"path": ".", "type": "a.StaticEmbedding"}, {"path": "1", "type": "a.Normalize"}]"#;
        let model = read(&[(MODULES, table)]).unwrap().unwrap();
        assert_eq!(model.pooling, Some(SequencePooling::Mean.into()));
        assert!(model.normalizes && model.table.is_some());
        let behind =
            r#"[{"path": "", "type": "Transformer"}, {"path": "", "type": "a.StaticEmbedding"}]"#;
        let behind = read(&[(MODULES, behind)]).unwrap_err();
        assert!(behind.contains("StaticEmbedding at the first place"), "{behind}");
    }

    #[test]
    fn layers_are_weighted_before_they_are_pooled() {
        let mean = ("1_Pooling/config.json", "{}");
        let behind = TWO.replace(']', r#", {"path": "2", "type": "a.WeightedLayerPooling"}]"#);
        let behind = read(&[(MODULES, &behind), mean]).unwrap_err();
        assert!(behind.contains("WeightedLayerPooling"), "{behind}");
        let modules = r#"[{"path": "1", "type": "a.WeightedLayerPooling"}]"#;
        let config = r#"{"num_hidden_layers": 3, "layer_start": 4}"#;
        let more = read(&[(MODULES, modules), ("1/config.json", config)]).unwrap_err();
        assert!(more.contains("layer_start"), "{more}");
    }

    #[test]
    fn what_is_not_computed_is_refused_by_its_name() {
        let refused = |pooling: &str| {
            read(&[(MODULES, TWO), ("1_Pooling/config.json", pooling)]).unwrap_err()
        };
        assert!(refused(r#"{"pooling_mode": "mean", "include_prompt": 3}"#).contains("prompt"));
        let twice = TWO.replace(
            "\"\", \"type\": \"sentence_transformers.models.Transformer\"",
            "\"1_Pooling\", \"type\": \"Pooling\"",
        );
        let mean = ("1_Pooling/config.json", r#"{"pooling_mode": "mean"}"#);
        assert!(read(&[(MODULES, &twice), mean]).unwrap_err().contains("one Pooling"));
        let outside = r#"[{"path": "../x", "type": "a.Pooling"}]"#;
        assert!(read(&[(MODULES, outside)]).unwrap_err().contains("the name of a folder"));
        let pools = r#"{"module_output_name": "sentence_embedding"}"#;
        let pools = read(&[(MODULES, "[]"), ("sentence_bert_config.json", pools)]).unwrap_err();
        assert!(pools.contains("module_output_name"), "{pools}");
        for (text, field) in [
            (r#"{"method": "get_text_features", "method_output_name": "logits"}"#, "text.method "),
            (r#"{"method": "forward", "method_output_name": "pooler_output"}"#, "output_name"),
            (r#"{"method_output_name": ["hidden_states", -2]}"#, "text.method_output_name"),
        ] {
            let file = format!(r#"{{"modality_config": {{"text": {text}}}}}"#);
            let files = [(MODULES, "[]"), ("sentence_bert_config.json", file.as_str())];
            let why = read(&files).unwrap_err().replace('`', " ");
            assert!(why.contains(field), "{why}");
        }
        let usual = r#"{"modality_config": {"text": {"method": "forward",
            "method_output_name": ["last_hidden_state"]}}}"#;
        assert!(read(&[(MODULES, "[]"), ("sentence_bert_config.json", usual)]).is_ok());
        let vectors = r#"{"module_output_name": "sentence_embedding", "modality_config": {"text":
            {"method": "get_text_features", "method_output_name": "pooler_output"}}}"#;
        let of_clip = |file: &str| {
            let config = ("config.json", r#"{"model_type": "clip"}"#);
            read(&[(MODULES, "[]"), config, ("sentence_bert_config.json", file)])
        };
        assert!(of_clip(vectors).is_ok());
        let why = of_clip(usual).unwrap_err();
        assert!(why.contains("text.method") && why.contains("get_text_features"), "{why}");
        let other = r#"[{"path": "1_CNN", "type": "sentence_transformers.models.CNN"}]"#;
        assert!(read(&[(MODULES, other)]).unwrap_err().contains("CNN"));
        assert!(read(&[(MODULES, TWO)]).unwrap_err().contains("1_Pooling"), "no file");
    }
}
