//! The classifier that a model gets: its classes, and the tensors that it is made of.

use std::path::Path;

use serde_json::{Map, Value};

use super::{
    Calibration, ClassifierActivation, LogitScore, PairInput,
    encoder_plan::{HeadFields, LayerPlan, tensors_of},
    gguf_modules,
    plan::{Origin, RewardHead},
    tokens::Vocabulary,
};
use crate::{
    config::{PoolerConfig, TokenPooling},
    gguf::is_gguf,
    model::{
        ConfigError, ModelError,
        encoder_class::{ClassHead, EncoderHead},
        family::NormKind,
    },
};

/// HF's module of a classifier.
const SCORE: &str = "score";
/// The two layers of Qwen's reward models. There is a ReLU between them.
pub(super) const REWARD_LAYERS: [&str; 2] = ["score.0", "score.2"];
/// The mean of logits in the code of `JinaVLForRanking`, and in vLLM.
const RANKER_MEAN: f32 = 2.65;
/// The head of InternLM's reward model.
const VALUE: &str = "v_head";

/// The classifier to load.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::model) struct ClassifierPlan {
    pub(super) labels: Vec<String>,
    pub(super) activation: ClassifierActivation,
    pub(super) weights: ClassifierWeights,
    pub(super) pairs: PairInput,
    /// The divisor of logits.
    temperature: f32,
    /// The mean of logits that a class fixes.
    logit_mean: f32,
    token_pooling: TokenPooling,
    is_by_token_alone: bool,
}

/// The tensors of a classifier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ClassifierWeights {
    /// One layer. HF's classes have no bias.
    Linear(&'static str),
    /// [`REWARD_LAYERS`], with biases.
    TwoLayers,
    /// Those of an encoder: layers, and the module of a last one.
    Encoder { layers: Vec<LayerPlan>, module: &'static str, has_bias: bool },
    /// Rows of the output layer, those of these tokens.
    Rows(Vec<u32>),
    /// The row of the second token less the row of the first. The softmax over the logits of both
    /// is then the sigmoid of one.
    Difference([u32; 2]),
    /// The first row of a GGUF file's [`OUTPUT`](gguf_modules::OUTPUT) less the second one.
    StoredDifference,
}

impl ClassifierWeights {
    /// Returns the modules of the layers, in their order. Rows of the output layer have none.
    pub(super) fn modules(&self) -> Vec<String> {
        let modules: Vec<&str> = match self {
            Self::Linear(module) => vec![*module],
            Self::TwoLayers => REWARD_LAYERS.to_vec(),
            Self::Encoder { layers, module, .. } => {
                let dense = layers.iter().filter_map(|layer| match layer {
                    LayerPlan::Dense { module, .. } => Some(*module),
                    LayerPlan::Norm { .. } => None,
                });
                dense.chain([*module]).collect()
            }
            Self::Rows(_) | Self::Difference(_) | Self::StoredDifference => Vec::new(),
        };
        modules.into_iter().map(str::to_owned).collect()
    }
}

impl ClassifierPlan {
    /// Reads the classes of `config.json` as transformers does, and `classifier_from_token` as vLLM
    /// does.
    ///
    /// # Errors
    /// [`ModelError`] for fields that contradict each other, and for tokens that the vocabulary of
    /// `tokenizer` lacks.
    pub(super) fn new(
        fields: HeadFields<'_>,
        origin: Origin,
        logit_score: Option<LogitScore>,
        tokenizer: &Path,
    ) -> Result<Self, ModelError> {
        let config = fields.config;
        if let Origin::Reward(head) = origin {
            return Self::reward(fields, head);
        }
        if origin == Origin::Ranker {
            let plan = Self::of_classes(fields, 1, ClassifierWeights::TwoLayers)?;
            let (pairs, logit_mean) = (PairInput::DocumentFirst, RANKER_MEAN);
            return Ok(Self { pairs, logit_mean, ..plan });
        }
        if let Some(LogitScore { yes, no }) = logit_score {
            let weights = match no {
                Some(no) => ClassifierWeights::Difference([no, yes]),
                None => ClassifierWeights::Rows(vec![yes]),
            };
            let plan = Self::of_classes(fields, 1, weights)?;
            return Ok(Self { pairs: PairInput::Conversation, ..plan });
        }
        if let Some(weights) = from_tokens(fields, tokenizer)? {
            let count = match &weights {
                ClassifierWeights::Rows(rows) => rows.len(),
                _ => 1,
            };
            // As in vLLM, such a model reads a pair as one text unless the config says otherwise.
            let pairs = pair_input(config, PairInput::OneText);
            return Ok(Self { pairs, ..Self::of_classes(fields, count, weights)? });
        }
        let named = config.get("id2label").and_then(Value::as_object);
        let count = config.get("num_labels").and_then(Value::as_u64);
        let count = count.and_then(|count| usize::try_from(count).ok());
        let count = named.map(Map::len).or(count).unwrap_or(2).clamp(1, 1 << 20);
        if let Origin::TokenClassifier(module) = origin {
            let layers = Vec::new();
            let weights = ClassifierWeights::Encoder { layers, module, has_bias: true };
            let plan = Self::of_classes(fields, count, weights)?;
            return Ok(Self { is_by_token_alone: true, ..plan });
        }
        let is_file = is_gguf(fields.folder);
        let Origin::Encoder(head) = origin else {
            if !is_file {
                return Self::of_classes(fields, count, ClassifierWeights::Linear(SCORE));
            }
            let plan = Self::of_classes(fields, 1, ClassifierWeights::StoredDifference)?;
            return Ok(Self { pairs: gguf_modules::pair_input(config), ..plan });
        };
        let Some(class) = head.class_head() else {
            let why = "the architecture has no classifier";
            return Err(super::plan::refused("convert", "classify", why));
        };
        let ClassHead { layers, classifier: module, has_bias, temperature, .. } = class;
        let layers = fields.layers(layers)?;
        let weights = ClassifierWeights::Encoder { layers, module, has_bias };
        let weights = if is_file { gguf_modules::named_in_file(weights) } else { weights };
        let is_by_token_alone = matches!(head, EncoderHead::Tokens(_));
        let temperature = temperature.map_or(Ok(1.0), |field| fields.divisor(field))?;
        let plan = Self::of_classes(fields, count, weights)?;
        Ok(Self { is_by_token_alone, temperature, ..plan })
    }

    fn reward(fields: HeadFields<'_>, head: RewardHead) -> Result<Self, ModelError> {
        let (count, weights, token_pooling) = match head {
            RewardHead::Outcome => (1, ClassifierWeights::TwoLayers, TokenPooling::All),
            RewardHead::Process => (2, ClassifierWeights::TwoLayers, TokenPooling::Step),
            RewardHead::Value => (1, ClassifierWeights::Linear(VALUE), TokenPooling::All),
        };
        let plan = Self::of_classes(fields, count, weights)?;
        Ok(Self { token_pooling, is_by_token_alone: true, ..plan })
    }

    fn of_classes(
        fields: HeadFields<'_>,
        count: usize,
        weights: ClassifierWeights,
    ) -> Result<Self, ModelError> {
        let named = fields.config.get("id2label").and_then(Value::as_object);
        let named = named.filter(|named| named.len() == count);
        let label = |id: usize| {
            let name = named.and_then(|named| named.get(&id.to_string())).and_then(Value::as_str);
            name.map_or_else(|| format!("LABEL_{id}"), str::to_owned)
        };
        Ok(Self {
            labels: (0..count).map(label).collect(),
            activation: activation(fields, count)?,
            weights,
            pairs: pair_input(fields.config, PairInput::Joined),
            temperature: 1.0,
            logit_mean: 0.0,
            token_pooling: TokenPooling::All,
            is_by_token_alone: false,
        })
    }

    /// Returns the pooling of each token by default.
    pub(super) fn token_pooling(&self) -> TokenPooling {
        self.token_pooling
    }

    /// Returns whether the model has no result for a whole prompt.
    pub(super) fn is_by_token_alone(&self) -> bool {
        self.is_by_token_alone
    }

    /// Returns whether the classifier is made of the output layer.
    pub(in crate::model) fn is_of_output_layer(&self) -> bool {
        matches!(self.weights, ClassifierWeights::Rows(_) | ClassifierWeights::Difference(_))
    }

    /// Returns the tensors that only the classifier has, with their shapes, where hidden states
    /// have `width` elements, and norms are of `kind`.
    pub(in crate::model) fn tensors(
        &self,
        width: usize,
        kind: NormKind,
    ) -> Vec<(String, Vec<usize>)> {
        let count = self.labels.len();
        match &self.weights {
            ClassifierWeights::Encoder { layers, module, has_bias } => {
                let layers = layers.iter().flat_map(|layer| layer.tensors(width, kind));
                layers.chain(tensors_of(module, &[count, width], *has_bias)).collect()
            }
            ClassifierWeights::Linear(module) => {
                vec![(format!("{module}.weight"), vec![count, width])]
            }
            ClassifierWeights::TwoLayers => {
                let layers = REWARD_LAYERS.into_iter().zip([width, count]);
                let tensors = layers.flat_map(|(module, outputs)| {
                    [
                        (format!("{module}.weight"), vec![outputs, width]),
                        (format!("{module}.bias"), vec![outputs]),
                    ]
                });
                tensors.collect()
            }
            ClassifierWeights::StoredDifference => {
                vec![(format!("{}.weight", gguf_modules::OUTPUT), vec![2, width])]
            }
            ClassifierWeights::Rows(_) | ClassifierWeights::Difference(_) => Vec::new(),
        }
    }

    /// Returns the name of a bias that is read if it is stored. As in vLLM, a classifier over the
    /// last token may have one, for example that of Jamba.
    pub(super) fn optional_bias(&self) -> Option<String> {
        matches!(self.weights, ClassifierWeights::Linear(SCORE)).then(|| format!("{SCORE}.bias"))
    }

    /// Returns the calibration that the settings ask for, of logits divided by the temperature.
    pub(super) fn calibration(&self, config: &PoolerConfig) -> Calibration {
        let by_default = Calibration::default();
        Calibration {
            mean: config.logit_mean.unwrap_or(self.logit_mean) * self.temperature,
            sigma: config.logit_sigma.unwrap_or(by_default.sigma) * self.temperature,
        }
    }
}

/// Returns how a pair is read by vLLM's field `use_sep_token`, or by its former name.
fn pair_input(config: &Map<String, Value>, default: PairInput) -> PairInput {
    let fields = ["use_pad_token", "use_sep_token"];
    match fields.iter().find_map(|field| config.get(*field)?.as_bool()) {
        Some(true) => PairInput::Joined,
        Some(false) => PairInput::OneText,
        None => default,
    }
}

/// Returns the function from logits to the numbers of an answer, as transformers chooses it.
///
/// # Errors
/// [`ConfigError::Invalid`] for a kind of problem or a function that is not known.
fn activation(fields: HeadFields<'_>, count: usize) -> Result<ClassifierActivation, ModelError> {
    const FIELD: &str = "problem_type";
    let by_default = match count {
        1 => ClassifierActivation::Sigmoid,
        _ => ClassifierActivation::Softmax,
    };
    let problem = fields.config.get(FIELD).unwrap_or(&Value::Null);
    match problem.as_str().unwrap_or_default() {
        "" if problem.is_null() || problem == "" => {
            Ok(activation_by_files(fields)?.unwrap_or(by_default))
        }
        "regression" => Ok(ClassifierActivation::Identity),
        "multi_label_classification" => Ok(ClassifierActivation::Sigmoid),
        "single_label_classification" => Ok(by_default),
        _ => {
            let known = "regression, single_label_classification or multi_label_classification";
            Err(fields.invalid_value(FIELD, problem, known))
        }
    }
}

/// Returns the function that sentence-transformers names for a cross-encoder.
fn activation_by_files(fields: HeadFields<'_>) -> Result<Option<ClassifierActivation>, ModelError> {
    if let Some(activation) = fields.activation {
        return Ok(Some(activation));
    }
    // The place of sentence-transformers in its versions 4 and 5, and the one before.
    let own = fields.config.get("sentence_transformers").and_then(|own| own.get("activation_fn"));
    let before = fields.config.get("sbert_ce_default_activation_function");
    let (value, field) = match (own, before) {
        (Some(own), _) => (own, "sentence_transformers.activation_fn"),
        (None, Some(before)) => (before, "sbert_ce_default_activation_function"),
        (None, None) => return Ok(None),
    };
    match ClassifierActivation::from_torch(value) {
        None if value.is_null() => Ok(None),
        None => Err(fields.invalid_value(field, value, ClassifierActivation::TORCH)),
        known => Ok(known),
    }
}

/// Reads `classifier_from_token`: the tokens whose rows of the output layer are the classifier.
fn from_tokens(
    fields: HeadFields<'_>,
    tokenizer: &Path,
) -> Result<Option<ClassifierWeights>, ModelError> {
    let HeadFields { folder, config, .. } = fields;
    const FIELD: &str = "classifier_from_token";
    let invalid = |field: &str, expected: &str| {
        let value = config.get(field).unwrap_or(&Value::Null).to_string();
        let (path, field, expected) =
            (folder.join("config.json"), field.to_owned(), expected.to_owned());
        ModelError::from(ConfigError::Invalid { path, field, value, expected })
    };
    let is_qwen = config.get("is_original_qwen3_reranker") == Some(&Value::Bool(true));
    let method = match config.get("method").and_then(Value::as_str) {
        None if is_qwen => Some("from_2_way_softmax"),
        method => method,
    };
    let listed = match config.get(FIELD) {
        None | Some(Value::Null) if is_qwen => return Err(invalid(FIELD, "[\"no\", \"yes\"]")),
        None | Some(Value::Null) => return Ok(None),
        Some(listed) => listed,
    };
    let names: Option<Vec<&str>> =
        listed.as_array().and_then(|list| list.iter().map(Value::as_str).collect());
    let names = names.filter(|names| !names.is_empty());
    let names = names.ok_or_else(|| invalid(FIELD, "a list of tokens"))?;
    let vocabulary = Vocabulary::read(tokenizer)?;
    let ids: Result<Vec<u32>, _> = names.iter().map(|name| vocabulary.id(name)).collect();
    let ids = ids?;
    match (method, ids.as_slice()) {
        (Some("no_post_processing"), _) => Ok(Some(ClassifierWeights::Rows(ids))),
        (Some("from_2_way_softmax"), &[no, yes]) => {
            Ok(Some(ClassifierWeights::Difference([no, yes])))
        }
        (Some("from_2_way_softmax"), _) => Err(invalid(FIELD, "two tokens: that of no, then yes")),
        _ => Err(invalid("method", "from_2_way_softmax or no_post_processing")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn plan(config: Value, origin: Origin) -> Result<ClassifierPlan, String> {
        let folder = tempfile::TempDir::new().unwrap();
        let vocab = r#"{"model": {"vocab": {"no": 3, "yes": 5}}}"#;
        std::fs::write(folder.path().join("tokenizer.json"), vocab).unwrap();
        let config = config.as_object().unwrap();
        let fields = HeadFields { folder: folder.path(), config, activation: None };
        ClassifierPlan::new(fields, origin, None, folder.path()).map_err(|error| error.to_string())
    }

    #[test]
    fn classes_are_those_of_the_config() {
        let classes = |config: Value| {
            let plan = plan(config, Origin::Classifier).unwrap();
            (plan.labels, plan.activation)
        };
        let named = json!({"id2label": {"0": "no", "1": "yes"}});
        let expected = vec!["no".to_owned(), "yes".to_owned()];
        assert_eq!(classes(named), (expected, ClassifierActivation::Softmax));
        let one = vec!["LABEL_0".to_owned()];
        assert_eq!(classes(json!({"num_labels": 1})), (one, ClassifierActivation::Sigmoid));
        let regression = json!({"num_labels": 1, "problem_type": "regression"});
        assert_eq!(classes(regression).1, ClassifierActivation::Identity);
        let identity = "torch.nn.modules.linear.Identity";
        let own = json!({"num_labels": 1, "sentence_transformers": {"activation_fn": identity}});
        assert_eq!(classes(own).1, ClassifierActivation::Identity);
        let old = json!({"num_labels": 1, "sbert_ce_default_activation_function": identity});
        assert_eq!(classes(old).1, ClassifierActivation::Identity);
    }

    #[test]
    fn functions_that_are_not_known_are_refused_by_their_field() {
        let identity = "torch.nn.modules.linear.Identity";
        for (wrong, part) in [
            (
                json!({"sentence_transformers": {"activation_fn": "torch.nn.Tanh"}}),
                "sentence_transformers.activation_fn",
            ),
            (
                json!({"sbert_ce_default_activation_function": "torch.nn.modules.activation.ReLU"}),
                "Identity, Sigmoid or Softmax",
            ),
            (json!({"sbert_ce_default_activation_function": 3}), "sbert_ce_default"),
            (json!({"problem_type": "ranking"}), "problem_type"),
        ] {
            let refused = plan(wrong, Origin::Classifier).unwrap_err();
            assert!(refused.contains(part) && refused.contains("config.json"), "{refused}");
        }
        // The kind of the problem decides before the function of the files.
        let both = json!({"problem_type": "multi_label_classification",
            "sbert_ce_default_activation_function": identity});
        let both = plan(both, Origin::Classifier).unwrap();
        assert_eq!(both.activation, ClassifierActivation::Sigmoid);
        let none = json!({"sentence_transformers": {"activation_fn": null}, "problem_type": null});
        let none = plan(none, Origin::Classifier).unwrap();
        assert_eq!(none.activation, ClassifierActivation::Softmax);
    }

    #[test]
    fn classes_may_be_tokens_of_the_output_layer() {
        let tokens = json!(["no", "yes"]);
        let qwen = json!({"classifier_from_token": tokens, "is_original_qwen3_reranker": true});
        let plan_of_qwen = plan(qwen, Origin::Classifier).unwrap();
        assert_eq!(plan_of_qwen.weights, ClassifierWeights::Difference([3, 5]));
        assert_eq!((plan_of_qwen.labels.len(), plan_of_qwen.pairs), (1, PairInput::OneText));
        let rows = json!({"classifier_from_token": ["yes"], "method": "no_post_processing"});
        let rows = plan(rows, Origin::Classifier).unwrap();
        assert_eq!(rows.weights, ClassifierWeights::Rows(vec![5]));
        assert!(rows.is_of_output_layer() && rows.tensors(8, NormKind::Rms).is_empty());
        for (wrong, part) in [
            (json!({"classifier_from_token": ["maybe"], "method": "no_post_processing"}), "maybe"),
            (json!({"classifier_from_token": ["yes"]}), "method"),
            (json!({"classifier_from_token": ["yes"], "method": "from_2_way_softmax"}), "two"),
            (json!({"is_original_qwen3_reranker": true}), "classifier_from_token"),
        ] {
            let refused = plan(wrong, Origin::Classifier).unwrap_err();
            assert!(refused.contains(part), "{refused}");
        }
    }

    #[test]
    fn a_field_decides_whether_the_tokenizer_joins_a_pair() {
        let pairs = |config: Value| plan(config, Origin::Classifier).unwrap().pairs;
        let rows = json!({"classifier_from_token": ["yes"], "method": "no_post_processing"});
        for (field, value, expected) in [
            ("use_sep_token", json!(true), [PairInput::Joined, PairInput::Joined]),
            ("use_sep_token", json!(false), [PairInput::OneText, PairInput::OneText]),
            ("use_pad_token", json!(true), [PairInput::Joined, PairInput::Joined]),
            ("use_sep_token", json!(null), [PairInput::Joined, PairInput::OneText]),
        ] {
            let (mut plain, mut rows) = (json!({"num_labels": 1}), rows.clone());
            plain[field] = value.clone();
            rows[field] = value;
            assert_eq!([pairs(plain), pairs(rows)], expected, "{field}");
        }
    }

    #[test]
    fn a_language_model_may_classify_each_token() {
        let plan = plan(json!({"num_labels": 3}), Origin::TokenClassifier("score")).unwrap();
        let expected = [("score.weight", vec![3, 8]), ("score.bias", vec![3])];
        let expected = expected.map(|(name, shape)| (name.to_owned(), shape));
        assert_eq!(plan.tensors(8, NormKind::Rms), expected);
        assert!(plan.is_by_token_alone());
    }

    #[test]
    fn a_score_may_have_a_bias() {
        let bias = |config: Value, origin| plan(config, origin).unwrap().optional_bias();
        let of_texts = bias(json!({}), Origin::Classifier);
        assert_eq!(of_texts.as_deref(), Some("score.bias"));
        assert_eq!(bias(json!({}), Origin::TokenClassifier("score")), None);
        assert_eq!(bias(json!({}), Origin::Reward(RewardHead::Value)), None);
    }

    #[test]
    fn reward_models_have_heads_of_their_own() {
        let process = plan(json!({}), Origin::Reward(RewardHead::Process)).unwrap();
        let shapes = process.tensors(8, NormKind::Rms);
        let expected = [
            ("score.0.weight", vec![8, 8]),
            ("score.0.bias", vec![8]),
            ("score.2.weight", vec![2, 8]),
            ("score.2.bias", vec![2]),
        ];
        assert_eq!(shapes, expected.map(|(name, shape)| (name.to_owned(), shape)));
        let value = plan(json!({}), Origin::Reward(RewardHead::Value)).unwrap();
        assert_eq!(value.tensors(8, NormKind::Rms), [("v_head.weight".to_owned(), vec![1, 8])]);
    }
}
