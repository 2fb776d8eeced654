//! The heads that a model gets: by its architecture, its files and the settings.

use std::path::Path;

use serde_json::{Map, Value};

use super::{
    ClassifierPlan, LayerWeights, Matryoshka, Poolings, RankingTokens, SentenceTransformers,
    TokenHeads,
    encoder_plan::{EncoderPlan, HeadFields},
    gguf_modules::{self, StoredDense},
    tokens::Vocabulary,
};
use crate::{
    config::{Convert, PoolerConfig, PoolerTask, Runner, SequencePooling, TokenPooling},
    model::{LoadOptions, ModelError, encoder_class::EncoderHead, family::NormKind},
};

/// The heads of an architecture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::model) enum Origin {
    /// An output layer: HF `…ForCausalLM`.
    CausalLm,
    /// None: HF `…Model`.
    Backbone,
    /// A classifier: HF `…ForSequenceClassification`.
    Classifier,
    /// A classifier of each token with a bias, in this module: HF `…ForTokenClassification`.
    TokenClassifier(&'static str),
    /// A reward for each token.
    Reward(RewardHead),
    /// A score of a query and a document from two layers: `JinaVLForRanking`.
    Ranker,
    /// That of a class of encoders.
    Encoder(EncoderHead),
}

impl Origin {
    /// Returns whether the architecture classifies.
    fn is_classifier(self) -> bool {
        match self {
            Self::Classifier | Self::TokenClassifier(_) | Self::Reward(_) | Self::Ranker => true,
            Self::Encoder(head) => head.class_head().is_some(),
            Self::CausalLm | Self::Backbone => false,
        }
    }

    /// Returns the origin of the same backbone with its hidden states in the place of classes.
    fn without_classes(self) -> Self {
        match self {
            Self::Classifier | Self::TokenClassifier(_) => Self::Backbone,
            Self::Encoder(head) if head.class_head().is_some() => {
                Self::Encoder(EncoderHead::Vectors)
            }
            other => other,
        }
    }
}

/// The heads of reward models.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::model) enum RewardHead {
    /// One reward from two layers: `Qwen2ForRewardModel`.
    Outcome,
    /// Two classes of each step from two layers: `Qwen2ForProcessRewardModel`.
    Process,
    /// One reward from one layer: `InternLM2ForRewardModel`.
    Value,
}

/// The heads to load.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::model) struct HeadPlan {
    /// Whether the model generates.
    pub(in crate::model) lm_head: bool,
    pub(in crate::model) pooler: Option<PoolerPlan>,
    /// The longest text of sentence-transformers, in tokens.
    pub(in crate::model) max_seq_length: Option<usize>,
    /// The same by default, which settings may exceed.
    pub(in crate::model) tokenizer_limit: Option<usize>,
}

/// The pooler to load.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::model) struct PoolerPlan {
    pub(in crate::model) config: PoolerConfig,
    pub(in crate::model) files: SentenceTransformers,
    /// Whether there are files of sentence-transformers.
    pub(in crate::model) has_files: bool,
    /// The layers behind the pooling that a GGUF file has, before those of `files`.
    pub(in crate::model) dense: Vec<StoredDense>,
    pub(in crate::model) classifier: Option<ClassifierPlan>,
    /// The other head of an encoder.
    pub(in crate::model) encoder: Option<EncoderPlan>,
    pub(in crate::model) matryoshka: Matryoshka,
    /// The tokens of documents that a comparison leaves out.
    pub(in crate::model) skipped_tokens: Vec<u32>,
    /// The layers of tokens beside the vector of a text.
    pub(in crate::model) token_heads: Option<TokenHeads>,
    /// The tokens of a ranking in one prompt.
    pub(in crate::model) ranking: Option<RankingTokens>,
}

impl HeadPlan {
    /// Returns the heads of the model in `folder`, whose architecture has the heads of `origin`.
    ///
    /// # Errors
    /// [`ModelError`] for settings that the architecture cannot follow, and for files of
    /// sentence-transformers that are not supported.
    pub(in crate::model) fn new(
        folder: &Path,
        config: &Map<String, Value>,
        origin: Origin,
        options: &LoadOptions,
    ) -> Result<Self, ModelError> {
        let wants_pooler = matches!(options.convert, Convert::Embed | Convert::Classify);
        // A model that is asked to generate needs no files of a pooler.
        let files = match options.runner == Runner::Generate && !wants_pooler {
            true => None,
            false => {
                let files = SentenceTransformers::read(folder)?;
                files.or_else(|| gguf_modules::read(folder, config))
            }
        };
        // A `Pooling` takes the hidden states of a class with another head, too.
        let pools = files.as_ref().is_some_and(|files| files.pooling.is_some());
        let is_free = matches!(options.convert, Convert::Auto | Convert::Embed);
        let origin = if pools && is_free { origin.without_classes() } else { origin };
        let lm_head = match (options.runner, origin) {
            (Runner::Generate, Origin::CausalLm) => true,
            (Runner::Generate, _) => {
                return Err(refused("runner", "generate", "the architecture has no output layer"));
            }
            (Runner::Auto, Origin::CausalLm) => files.is_none(),
            (Runner::Auto | Runner::Pooling, _) => false,
        };
        let logit_score = files.as_ref().and_then(|files| files.logit_score);
        let classifies = match (options.convert, origin) {
            (Convert::Classify, _) => true,
            (Convert::Embed, origin) if origin.is_classifier() => {
                return Err(refused("convert", "embed", "the architecture is a classifier"));
            }
            (Convert::None, Origin::CausalLm) if !lm_head => {
                return Err(refused("convert", "none", "the architecture has no pooler"));
            }
            (Convert::Auto | Convert::None, Origin::CausalLm) if logit_score.is_some() => true,
            (Convert::Auto | Convert::None | Convert::Embed, origin) => origin.is_classifier(),
        };
        let (max_seq_length, tokenizer_limit) =
            files.as_ref().map_or((None, None), |it| (it.max_seq_length, it.tokenizer_limit));
        let tokenizer = options.tokenizer.as_deref().unwrap_or(folder);
        let activation = files.as_ref().and_then(|files| files.activation);
        let fields = HeadFields { folder, config, activation };
        let classifier = || ClassifierPlan::new(fields, origin, logit_score, tokenizer);
        let pooler = (!lm_head || wants_pooler).then(|| {
            let classifier = classifies.then(classifier).transpose()?;
            PoolerPlan::new(fields, origin, options, files, classifier)
        });
        Ok(Self { lm_head, pooler: pooler.transpose()?, max_seq_length, tokenizer_limit })
    }
}

impl PoolerPlan {
    fn new(
        fields: HeadFields<'_>,
        origin: Origin,
        options: &LoadOptions,
        files: Option<SentenceTransformers>,
        classifier: Option<ClassifierPlan>,
    ) -> Result<Self, ModelError> {
        let config = fields.config;
        let classifies = classifier.is_some();
        let pooler = options.pooler.clone().unwrap_or_default();
        let is_class = |task| matches!(task, PoolerTask::Classify | PoolerTask::TokenClassify);
        let is_threefold = origin == Origin::Encoder(EncoderHead::Threefold);
        if pooler.task.is_some_and(|task| is_class(task) != classifies) && !is_threefold {
            let why = match classifies {
                true => "the model classifies",
                false => "the model has no classifier",
            };
            return Err(refused("pooler_config", "task", why));
        }
        if classifies && pooler.enable_chunked_processing {
            let why = "only vectors have a mean, and the model classifies";
            return Err(refused("pooler_config", "enable_chunked_processing", why));
        }
        let is_reward = classifier.as_ref().is_some_and(ClassifierPlan::is_by_token_alone);
        if is_reward && pooler.task == Some(PoolerTask::Classify) {
            let why = "the model has a result for each token: token_classify";
            return Err(refused("pooler_config", "task", why));
        }
        let has_files = files.is_some();
        let mut files = files.unwrap_or_default();
        if let Some(instructions) = task_instructions(config) {
            files.prompts = instructions;
        }
        let is_sparse = files.weights.is_some() || !has_files;
        let encoder = match origin {
            Origin::Encoder(head) => Some(EncoderPlan::new(fields, head, is_sparse)?),
            _ => None,
        };
        if files.weights.is_some() && encoder.is_none_or(|plan| plan.vocabulary.is_none()) {
            let why = "the architecture has no head of a masked language model";
            return Err(refused("modules.json", "SpladePooling", why));
        }
        if files.weights.is_some_and(|pooling| pooling.sums) && pooler.enable_chunked_processing {
            let why = "weights are sums over all tokens (pooling_strategy of SpladePooling)";
            return Err(refused("pooler_config", "enable_chunked_processing", why));
        }
        if files.table.is_some() && origin != Origin::Backbone {
            let why = "the architecture is a transformer";
            return Err(refused("modules.json", "StaticEmbedding", why));
        }
        if files.logit_score.is_some() && origin != Origin::CausalLm {
            return Err(refused(
                "modules.json",
                "LogitScore",
                "the architecture has no output layer",
            ));
        }
        if classifies && files.pooling.as_ref().is_some_and(|poolings| poolings.count() > 1) {
            let why = "a classifier takes the vector of one pooling";
            return Err(refused("modules.json", "Pooling", why));
        }
        let matryoshka = matryoshka(config);
        let tokenizer = options.tokenizer.as_deref().unwrap_or(fields.folder);
        let skipped_tokens = match &files.skipped_words[..] {
            [] => Vec::new(),
            words => {
                let vocabulary = Vocabulary::read(tokenizer)?;
                words.iter().filter_map(|word| vocabulary.find(word)).collect()
            }
        };
        let token_heads = is_threefold.then(|| TokenHeads::read(fields)).transpose()?;
        let ranking = match origin {
            Origin::Encoder(EncoderHead::Listwise { document, query, .. }) => {
                Some(RankingTokens::read(tokenizer, [document, query])?)
            }
            _ => None,
        };
        let dense = StoredDense::of_file(fields.folder, config);
        let config = pooler;
        let this = Self {
            config,
            files,
            has_files,
            dense,
            classifier,
            encoder,
            matryoshka,
            skipped_tokens,
            token_heads,
            ranking,
        };
        match this.config.task {
            Some(task) if !this.heads().contains(&task) => {
                let why = "the architecture has a head for another task";
                Err(refused("pooler_config", "task", why))
            }
            _ => Ok(this),
        }
    }

    /// Returns the tensors that only the pooler has, with their shapes: of hidden states of `width`
    /// elements, norms of `kind` and `vocab` tokens.
    pub(in crate::model) fn tensors(
        &self,
        width: usize,
        kind: NormKind,
        vocab: usize,
    ) -> Vec<(String, Vec<usize>)> {
        let of_classes = self.classifier.as_ref().map(|plan| plan.tensors(width, kind));
        let of_encoder = self.encoder.map(|plan| plan.tensors(width, kind, vocab));
        let of_file = self.dense.iter().map(StoredDense::tensor);
        of_classes.into_iter().chain(of_encoder).flatten().chain(of_file).collect()
    }

    /// Returns the names of tensors that the checkpoint may lack, and of those whose shapes it
    /// decides.
    pub(in crate::model) fn optional_tensors(&self) -> Vec<String> {
        let of_classes = self.classifier.as_ref().and_then(ClassifierPlan::optional_bias);
        let of_encoder = self.encoder.as_ref().map(EncoderPlan::projections);
        of_classes.into_iter().chain(of_encoder.into_iter().flatten()).collect()
    }

    /// Returns the weights of the layers whose mean is pooled, of a model with the fields `config`.
    /// As in sentence-transformers, their module has no effect unless the config asks for all
    /// hidden states.
    pub(in crate::model) fn layer_weights(
        &self,
        config: &Map<String, Value>,
    ) -> Option<LayerWeights> {
        let has_all = config.get("output_hidden_states") == Some(&Value::Bool(true));
        self.files.layer_weights.clone().filter(|_| has_all)
    }

    /// Returns the tasks that the heads have, the default one first.
    fn heads(&self) -> &'static [PoolerTask] {
        let is_sparse = self.encoder.is_some_and(|plan| plan.vocabulary.is_some());
        // A projection without a pooling before it is one of tokens.
        let projects_tokens = self.encoder.is_some_and(|plan| plan.projects_tokens_alone)
            || self.files.pooling.is_none() && !self.files.stages.is_empty();
        let joins = self.sequence().count() > 1;
        if self.token_heads.is_some() {
            return &[PoolerTask::Embed, PoolerTask::TokenEmbed, PoolerTask::TokenClassify];
        }
        match &self.classifier {
            Some(plan) if plan.is_by_token_alone() => &[PoolerTask::TokenClassify],
            Some(_) => &[PoolerTask::Classify, PoolerTask::TokenClassify],
            None if is_sparse || joins => &[PoolerTask::Embed],
            None if projects_tokens => &[PoolerTask::TokenEmbed],
            None => &[PoolerTask::Embed, PoolerTask::TokenEmbed],
        }
    }

    /// Returns the tasks of the model, the one that its routes are open for first.
    pub(in crate::model) fn tasks(&self) -> Vec<PoolerTask> {
        let mut tasks = self.heads().to_vec();
        tasks.sort_by_key(|task| self.config.task != Some(*task));
        tasks
    }

    /// Returns the pooling of whole prompts.
    pub(in crate::model) fn sequence(&self) -> Poolings {
        let by_head = self.encoder.map_or(SequencePooling::Last, |plan| plan.sequence);
        let by_files = self.files.pooling.clone().unwrap_or_else(|| by_head.into());
        self.config.seq_pooling_type.map_or(by_files, Poolings::from)
    }

    /// Returns the pooling of each token.
    pub(in crate::model) fn token(&self) -> TokenPooling {
        let by_head = self.classifier.as_ref().map(ClassifierPlan::token_pooling);
        self.config.tok_pooling_type.or(by_head).unwrap_or(TokenPooling::All)
    }

    /// Returns whether vectors are normalized and logits become probabilities by default.
    pub(in crate::model) fn activation(&self) -> bool {
        let is_sparse = self.encoder.is_some_and(|plan| plan.vocabulary.is_some());
        let is_plain = !self.has_files && !is_sparse;
        let by_class = self.encoder.is_some_and(|plan| plan.normalizes());
        let is_plain = is_plain || by_class;
        let by_files = is_plain || self.files.normalizes || self.classifier.is_some();
        self.config.use_activation.unwrap_or(by_files && self.ranking.is_none())
    }
}

/// Reads the sizes to which vectors may be cut.
fn matryoshka(config: &Map<String, Value>) -> Matryoshka {
    let listed = config.get("matryoshka_dimensions").and_then(Value::as_array);
    let listed = listed.map(|sizes| {
        sizes.iter().filter_map(|size| u32::try_from(size.as_u64()?).ok()).collect::<Vec<_>>()
    });
    match (listed, config.get("is_matryoshka")) {
        (Some(listed), _) if !listed.is_empty() => Matryoshka::Listed(listed),
        (_, Some(Value::Bool(true))) => Matryoshka::Any,
        _ => Matryoshka::Fixed,
    }
}

/// Reads the texts before texts of each kind, of models that have them in their config.
fn task_instructions(config: &Map<String, Value>) -> Option<Vec<(String, String)>> {
    let instructions = config.get("task_instructions")?.as_object()?;
    let text = |(kind, text): (&String, &Value)| Some((kind.clone(), text.as_str()?.to_owned()));
    let texts: Vec<_> = instructions.iter().filter_map(text).collect();
    (!texts.is_empty()).then_some(texts)
}

pub(super) fn refused(setting: &'static str, value: &'static str, why: &'static str) -> ModelError {
    ModelError::Heads { setting, value, why }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::families::encoders;

    fn plan(config: Value, origin: Origin, options: LoadOptions) -> Result<HeadPlan, String> {
        let folder = tempfile::TempDir::new().unwrap();
        let config = config.as_object().unwrap();
        HeadPlan::new(folder.path(), config, origin, &options).map_err(|error| error.to_string())
    }

    fn with(runner: Runner, convert: Convert) -> LoadOptions {
        LoadOptions { runner, convert, ..LoadOptions::default() }
    }

    #[test]
    fn the_architecture_decides_unless_the_settings_do() {
        let heads = |origin, runner, convert| {
            plan(json!({}), origin, with(runner, convert))
                .map(|plan| (plan.lm_head, plan.pooler.map(|pooler| pooler.tasks()[0])))
        };
        let (auto, embed) = (Convert::Auto, Some(PoolerTask::Embed));
        assert_eq!(heads(Origin::CausalLm, Runner::Auto, auto), Ok((true, None)));
        assert_eq!(heads(Origin::CausalLm, Runner::Pooling, auto), Ok((false, embed)));
        assert_eq!(heads(Origin::Backbone, Runner::Auto, auto), Ok((false, embed)));
        let classify = Some(PoolerTask::Classify);
        assert_eq!(heads(Origin::Classifier, Runner::Auto, auto), Ok((false, classify)));
        let both = heads(Origin::CausalLm, Runner::Generate, Convert::Embed);
        assert_eq!(both, Ok((true, embed)));
        assert!(heads(Origin::Classifier, Runner::Generate, auto).is_err());
        assert!(heads(Origin::Classifier, Runner::Auto, Convert::Embed).is_err());
        assert!(heads(Origin::CausalLm, Runner::Pooling, Convert::None).is_err());
    }

    /// Published folders with a `Pooling` have classes of other heads, for example that of
    /// gte-multilingual-base. sentence-transformers reads their backbone.
    #[test]
    fn a_pooling_takes_the_hidden_states_of_a_classifier() {
        let folder = tempfile::TempDir::new().unwrap();
        let modules = r#"[{"path": "", "type": "Transformer"}, {"path": "1", "type": "Pooling"}]"#;
        std::fs::write(folder.path().join("modules.json"), modules).unwrap();
        std::fs::create_dir(folder.path().join("1")).unwrap();
        std::fs::write(folder.path().join("1/config.json"), "{}").unwrap();
        let config = Map::new();
        let heads = |origin, convert| {
            let plan = HeadPlan::new(folder.path(), &config, origin, &with(Runner::Auto, convert));
            let pooler = plan.map_err(|error| error.to_string())?.pooler.unwrap();
            Ok::<_, String>((pooler.tasks()[0], pooler.tensors(8, NormKind::Rms, 9).len()))
        };
        let named = |name: &str| {
            let class = encoders::classes().find(|class| class.architecture == name).unwrap();
            Origin::Encoder(class.head)
        };
        let (vectors, classes) = (Ok((PoolerTask::Embed, 0)), PoolerTask::Classify);
        for origin in [
            Origin::Classifier,
            Origin::TokenClassifier("score"),
            named("NewForTokenClassification"),
            named("BertForSequenceClassification"),
        ] {
            assert_eq!(heads(origin, Convert::Auto), vectors, "{origin:?}");
            assert_eq!(heads(origin, Convert::Embed), vectors, "{origin:?}");
        }
        assert_eq!(heads(Origin::Classifier, Convert::Classify), Ok((classes, 1)));
    }

    #[test]
    fn a_task_without_its_head_is_refused() {
        let pooler =
            Some(PoolerConfig { task: Some(PoolerTask::Classify), ..PoolerConfig::default() });
        let options = LoadOptions { runner: Runner::Pooling, pooler, ..LoadOptions::default() };
        let refused = plan(json!({}), Origin::CausalLm, options).unwrap_err();
        assert!(refused.contains("has no classifier"), "{refused}");
    }

    #[test]
    fn a_reward_is_that_of_each_token() {
        let reward = |head, pooler: PoolerConfig| {
            let options = LoadOptions { pooler: Some(pooler), ..LoadOptions::default() };
            let plan = plan(json!({}), Origin::Reward(head), options)?;
            let pooler = plan.pooler.unwrap();
            Ok::<_, String>((pooler.tasks(), pooler.token()))
        };
        let tasks = vec![PoolerTask::TokenClassify];
        let all = reward(RewardHead::Outcome, PoolerConfig::default());
        assert_eq!(all, Ok((tasks.clone(), TokenPooling::All)));
        let step = reward(RewardHead::Process, PoolerConfig::default());
        assert_eq!(step, Ok((tasks, TokenPooling::Step)));
        let whole = PoolerConfig { task: Some(PoolerTask::Classify), ..PoolerConfig::default() };
        assert!(reward(RewardHead::Value, whole).unwrap_err().contains("token_classify"));
    }

    #[test]
    fn a_field_names_the_pooling_of_llama_nemotron() {
        let head = |name: &str| {
            let class = encoders::classes().find(|class| class.architecture == name).unwrap();
            Origin::Encoder(class.head)
        };
        let names =
            ["LlamaBidirectionalModel", "LlamaBidirectionalForSequenceClassification"].map(head);
        for origin in names {
            let pooling = |config| {
                plan(config, origin, LoadOptions::default())
                    .map(|plan| plan.pooler.unwrap().sequence())
            };
            assert_eq!(pooling(json!({})), Ok(SequencePooling::Mean.into()));
            assert_eq!(pooling(json!({ "pooling": "cls" })), Ok(SequencePooling::Cls.into()));
            assert_eq!(pooling(json!({ "pooling": "last" })), Ok(SequencePooling::Last.into()));
            let sum = pooling(json!({ "pooling": "weighted_avg" })).unwrap_err();
            assert!(sum.contains("pooling") && sum.contains("\"avg\""), "{sum}");
        }
        let cold = plan(json!({ "temperature": 0 }), names[1], LoadOptions::default());
        assert!(cold.unwrap_err().contains("temperature"));
    }

    #[test]
    fn instructions_of_the_config_replace_prompts() {
        let config = json!({"task_instructions": {"query": "q: ", "number": 1}});
        let plan = plan(config, Origin::Backbone, LoadOptions::default()).unwrap();
        assert_eq!(plan.pooler.unwrap().files.prompts, [("query".to_owned(), "q: ".to_owned())]);
    }
}
