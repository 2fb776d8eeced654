//! The heads that a model gets: by its architecture, its files and the settings.

use std::path::Path;

use serde_json::{Map, Value};

use super::{ClassifierPlan, Matryoshka, SentenceTransformers};
use crate::{
    config::{Convert, PoolerConfig, PoolerTask, Runner, SequencePooling, TokenPooling},
    model::{LoadOptions, ModelError},
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
    /// A reward for each token.
    Reward(RewardHead),
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
}

/// The pooler to load.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::model) struct PoolerPlan {
    pub(in crate::model) config: PoolerConfig,
    pub(in crate::model) files: SentenceTransformers,
    /// Whether there are files of sentence-transformers.
    pub(in crate::model) has_files: bool,
    pub(in crate::model) classifier: Option<ClassifierPlan>,
    pub(in crate::model) matryoshka: Matryoshka,
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
            false => SentenceTransformers::read(folder)?,
        };
        let lm_head = match (options.runner, origin) {
            (Runner::Generate, Origin::CausalLm) => true,
            (Runner::Generate, _) => {
                return Err(refused("runner", "generate", "the architecture has no output layer"));
            }
            (Runner::Auto, Origin::CausalLm) => files.is_none(),
            (Runner::Auto | Runner::Pooling, _) => false,
        };
        let classifies = match (options.convert, origin) {
            (Convert::Classify, _) => true,
            (Convert::Embed, Origin::Classifier | Origin::Reward(_)) => {
                return Err(refused("convert", "embed", "the architecture is a classifier"));
            }
            (Convert::None, Origin::CausalLm) if !lm_head => {
                return Err(refused("convert", "none", "the architecture has no pooler"));
            }
            (Convert::Auto | Convert::None | Convert::Embed, origin) => {
                matches!(origin, Origin::Classifier | Origin::Reward(_))
            }
        };
        let max_seq_length = files.as_ref().and_then(|files| files.max_seq_length);
        let tokenizer = options.tokenizer.as_deref().unwrap_or(folder);
        let classifier = || ClassifierPlan::new(config, origin, folder, tokenizer);
        let pooler = (!lm_head || wants_pooler).then(|| {
            let classifier = classifies.then(classifier).transpose()?;
            PoolerPlan::new(config, options, files, classifier)
        });
        Ok(Self { lm_head, pooler: pooler.transpose()?, max_seq_length })
    }

    /// Returns the plan of the classifier, if there is one.
    pub(in crate::model) fn classifier(&self) -> Option<&ClassifierPlan> {
        self.pooler.as_ref()?.classifier.as_ref()
    }
}

impl PoolerPlan {
    fn new(
        config: &Map<String, Value>,
        options: &LoadOptions,
        files: Option<SentenceTransformers>,
        classifier: Option<ClassifierPlan>,
    ) -> Result<Self, ModelError> {
        let classifies = classifier.is_some();
        let pooler = options.pooler.clone().unwrap_or_default();
        let is_class = |task| matches!(task, PoolerTask::Classify | PoolerTask::TokenClassify);
        if pooler.task.is_some_and(|task| is_class(task) != classifies) {
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
            let why = "a reward model has a result for each token: token_classify";
            return Err(refused("pooler_config", "task", why));
        }
        let has_files = files.is_some();
        let mut files = files.unwrap_or_default();
        if let Some(instructions) = task_instructions(config) {
            files.prompts = instructions;
        }
        let matryoshka = matryoshka(config);
        Ok(Self { config: pooler, files, has_files, classifier, matryoshka })
    }

    /// Returns the tasks of the model, the one that its routes are open for first.
    pub(in crate::model) fn tasks(&self) -> Vec<PoolerTask> {
        let mut tasks = match &self.classifier {
            Some(plan) if plan.is_by_token_alone() => return vec![PoolerTask::TokenClassify],
            Some(_) => vec![PoolerTask::Classify, PoolerTask::TokenClassify],
            None => vec![PoolerTask::Embed, PoolerTask::TokenEmbed],
        };
        if self.config.task == Some(tasks[1]) {
            tasks.swap(0, 1);
        }
        tasks
    }

    /// Returns the pooling of whole prompts.
    pub(in crate::model) fn sequence(&self) -> SequencePooling {
        let by_files = self.files.pooling.unwrap_or(SequencePooling::Last);
        self.config.seq_pooling_type.unwrap_or(by_files)
    }

    /// Returns the pooling of each token.
    pub(in crate::model) fn token(&self) -> TokenPooling {
        let by_head = self.classifier.as_ref().map(ClassifierPlan::token_pooling);
        self.config.tok_pooling_type.or(by_head).unwrap_or(TokenPooling::All)
    }

    /// Returns whether vectors are normalized and logits become probabilities by default.
    pub(in crate::model) fn activation(&self) -> bool {
        let by_files = !self.has_files || self.files.normalizes || self.classifier.is_some();
        self.config.use_activation.unwrap_or(by_files)
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
    fn instructions_of_the_config_replace_prompts() {
        let config = json!({"task_instructions": {"query": "q: ", "number": 1}});
        let plan = plan(config, Origin::Backbone, LoadOptions::default()).unwrap();
        assert_eq!(plan.pooler.unwrap().files.prompts, [("query".to_owned(), "q: ".to_owned())]);
    }
}
