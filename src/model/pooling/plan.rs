//! The heads that a model gets: by its architecture, its files and the settings.

use std::path::Path;

use serde_json::{Map, Value};

use super::{ClassifierActivation, Matryoshka, SentenceTransformers};
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

/// The classifier to load.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::model) struct ClassifierPlan {
    pub(in crate::model) labels: Vec<String>,
    pub(in crate::model) activation: ClassifierActivation,
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
            (Runner::Generate, Origin::Backbone | Origin::Classifier) => {
                return Err(refused("runner", "generate", "the architecture has no output layer"));
            }
            (Runner::Pooling, _) | (Runner::Auto, Origin::Backbone | Origin::Classifier) => false,
            (Runner::Auto, Origin::CausalLm) => files.is_none(),
        };
        let classifies = match (options.convert, origin) {
            (Convert::Classify, _) => true,
            (Convert::Embed, Origin::Classifier) => {
                return Err(refused("convert", "embed", "the architecture is a classifier"));
            }
            (Convert::None, Origin::CausalLm) if !lm_head => {
                return Err(refused("convert", "none", "the architecture has no pooler"));
            }
            (Convert::Auto | Convert::None | Convert::Embed, origin) => {
                origin == Origin::Classifier
            }
        };
        let max_seq_length = files.as_ref().and_then(|files| files.max_seq_length);
        let pooler =
            (!lm_head || wants_pooler).then(|| PoolerPlan::new(config, options, files, classifies));
        Ok(Self { lm_head, pooler: pooler.transpose()?, max_seq_length })
    }

    /// Returns the number of classes, if there is a classifier.
    pub(in crate::model) fn num_classes(&self) -> Option<usize> {
        Some(self.pooler.as_ref()?.classifier.as_ref()?.labels.len())
    }
}

impl PoolerPlan {
    fn new(
        config: &Map<String, Value>,
        options: &LoadOptions,
        files: Option<SentenceTransformers>,
        classifies: bool,
    ) -> Result<Self, ModelError> {
        let classifier = classifies.then(|| ClassifierPlan::new(config));
        let pooler = options.pooler.clone().unwrap_or_default();
        let is_class = |task| matches!(task, PoolerTask::Classify | PoolerTask::TokenClassify);
        if pooler.task.is_some_and(|task| is_class(task) != classifies) {
            let why = match classifies {
                true => "the model classifies",
                false => "the model has no classifier",
            };
            return Err(refused("pooler_config", "task", why));
        }
        if pooler.tok_pooling_type == Some(TokenPooling::Step) && pooler.step_tag_id.is_none() {
            return Err(refused("pooler_config", "STEP", "step_tag_id is missing"));
        }
        let has_files = files.is_some();
        let files = files.unwrap_or_default();
        let matryoshka = matryoshka(config);
        Ok(Self { config: pooler, files, has_files, classifier, matryoshka })
    }

    /// Returns the tasks of the model, the one that its routes are open for first.
    pub(in crate::model) fn tasks(&self) -> Vec<PoolerTask> {
        let mut tasks = match self.classifier {
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

    /// Returns whether vectors are normalized and logits become probabilities by default.
    pub(in crate::model) fn activation(&self) -> bool {
        let by_files = !self.has_files || self.files.normalizes || self.classifier.is_some();
        self.config.use_activation.unwrap_or(by_files)
    }
}

impl ClassifierPlan {
    /// Reads the classes of `config.json` as transformers does.
    fn new(config: &Map<String, Value>) -> Self {
        let named = config.get("id2label").and_then(Value::as_object);
        let count = config.get("num_labels").and_then(Value::as_u64);
        let count = count.and_then(|count| usize::try_from(count).ok());
        let count = named.map(Map::len).or(count).unwrap_or(2).clamp(1, 1 << 20);
        let label = |id: usize| {
            let name = named.and_then(|named| named.get(&id.to_string())).and_then(Value::as_str);
            name.map_or_else(|| format!("LABEL_{id}"), str::to_owned)
        };
        let problem = config.get("problem_type").and_then(Value::as_str).unwrap_or_default();
        let by_files = config.get("sbert_ce_default_activation_function").and_then(Value::as_str);
        let by_files = by_files.and_then(|name| name.rsplit('.').next());
        let activation = match (problem, by_files) {
            ("regression", _) | ("", Some("Identity")) => ClassifierActivation::Identity,
            ("multi_label_classification", _) | ("", Some("Sigmoid")) => {
                ClassifierActivation::Sigmoid
            }
            _ if count == 1 => ClassifierActivation::Sigmoid,
            _ => ClassifierActivation::Softmax,
        };
        Self { labels: (0..count).map(label).collect(), activation }
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

fn refused(setting: &'static str, value: &'static str, why: &'static str) -> ModelError {
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
    fn classes_are_those_of_the_config() {
        let classes = |config: Value| {
            let plan = plan(config, Origin::Classifier, LoadOptions::default()).unwrap();
            let classifier = plan.pooler.unwrap().classifier.unwrap();
            (classifier.labels, classifier.activation)
        };
        let named = json!({"id2label": {"0": "no", "1": "yes"}});
        let expected = vec!["no".to_owned(), "yes".to_owned()];
        assert_eq!(classes(named), (expected, ClassifierActivation::Softmax));
        let one = vec!["LABEL_0".to_owned()];
        assert_eq!(classes(json!({"num_labels": 1})), (one, ClassifierActivation::Sigmoid));
        let regression = json!({"num_labels": 1, "problem_type": "regression"});
        assert_eq!(classes(regression).1, ClassifierActivation::Identity);
    }

    #[test]
    fn a_task_without_its_head_is_refused() {
        let pooler =
            Some(PoolerConfig { task: Some(PoolerTask::Classify), ..PoolerConfig::default() });
        let options = LoadOptions { runner: Runner::Pooling, pooler, ..LoadOptions::default() };
        let refused = plan(json!({}), Origin::CausalLm, options).unwrap_err();
        assert!(refused.contains("has no classifier"), "{refused}");
    }
}
