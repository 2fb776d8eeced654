//! Classifiers in files: llama.cpp's tensors `cls` and `cls.output`, behind the pooling
//! (`llama_pooling_type` 4, the rank of a pair). The poolings of language models.

use serde_json::{Map, Value};

use super::metadata::Metadata;
use crate::gguf::{FORMAT, GgufError};
use crate::model_files::ModelFileError;

const HIDDEN: &str = "cls.weight";
const OUTPUT: &str = "cls.output.weight";
/// The names of the two rows of a Qwen3 reranker.
const ANSWERS: [&str; 2] = ["yes", "no"];
/// The text for a pair, with places for the query and the document.
const PROMPT: &str = "tokenizer.chat_template.rerank";

impl Metadata<'_> {
    /// Returns whether the file has a classifier.
    pub(super) fn classifies(&self) -> bool {
        self.file.tensor(OUTPUT).is_some()
    }

    /// Returns the class of a file with a classifier.
    ///
    /// # Errors
    /// The file lacks a layer of its model, or no such model is read.
    pub(super) fn classifier(&self) -> Result<Option<&'static str>, GgufError> {
        let has = |name: &str| self.file.tensor(name).is_some();
        let reason = match (self.architecture.name, has(HIDDEN), self.classifies()) {
            // A layer without an output is that of a masked language model.
            (_, false, false) | ("modern-bert", _, false) => return Ok(None),
            // RoBERTa computes as BERT, with another name of the first layer.
            ("bert", true, true) if has("token_types.weight") => {
                return Ok(Some("BertForSequenceClassification"));
            }
            ("bert", true, true) => return Ok(Some("DistilBertForSequenceClassification")),
            ("modern-bert", true, true) => return Ok(Some("ModernBertForSequenceClassification")),
            ("qwen3", false, true) => return Ok(Some("Qwen3ForSequenceClassification")),
            ("bert" | "jina-bert-v2", ..) => format!(
                "tensors `{HIDDEN}` and `{OUTPUT}` are a classifier, of which one is missing: \
                 llama.cpp's converter leaves out a layer of BERT; load the model's folder"
            ),
            (name, ..) => format!(
                "a classifier (`{HIDDEN}`, `{OUTPUT}`) of the architecture {name} is not \
                 supported; it is in the architectures bert, modern-bert and qwen3"
            ),
        };
        Err(ModelFileError::invalid(self.file.path(), FORMAT)(reason).into())
    }

    /// Sets the names of the classes, or their number. A Qwen3 reranker has one, and its prompt.
    pub(super) fn classes(&mut self) -> Result<(), GgufError> {
        let (file, key) = (self.file, self.key("classifier.output_labels"));
        let Some(output) = file.tensor(OUTPUT) else { return Ok(()) };
        let elements: usize = output.shape.iter().product();
        let rows = (elements as u64).checked_div(self.size("hidden_size")).unwrap_or(0);
        let labels = file.texts(&key)?;
        if self.architecture.name == "qwen3" {
            if labels.is_some_and(|labels| labels != ANSWERS) {
                return Err(file.unexpected(&key, "[\"yes\", \"no\"]"));
            }
            if let Some(prompt) = file.text(PROMPT)? {
                self.set("pair_prompt", PROMPT.to_owned(), prompt);
            }
            return Ok(());
        }
        match labels {
            None => self.set("num_labels", format!("the rows of tensor {OUTPUT}"), rows),
            Some(labels) if labels.len() as u64 == rows => {
                let named = labels.into_iter().enumerate();
                let named = named.map(|(id, label)| (id.to_string(), Value::from(label)));
                self.set("id2label", key, named.collect::<Map<_, _>>());
            }
            Some(_) => {
                let expected = format!("{rows} names, as tensor {OUTPUT} has {rows} rows");
                return Err(file.unexpected(&key, expected));
            }
        }
        Ok(())
    }

    /// Sets the pooling of a language model that makes vectors.
    pub(super) fn pooling_of_language(&mut self) -> Result<(), GgufError> {
        let key = self.key("pooling_type");
        let name = match self.file.unsigned(&key)? {
            Some(1) => "mean",
            Some(2) => "cls",
            Some(3) => "last",
            _ => return Ok(()),
        };
        self.set("file_pooling", key, name);
        Ok(())
    }

    /// Sets the pooling before the classifier of ModernBERT. llama.cpp's default is the mean.
    pub(super) fn class_pooling(&mut self) -> Result<(), GgufError> {
        let key = self.key("classifier.pooling_type");
        let name = match self.file.unsigned(&key)? {
            None | Some(1) => "mean",
            Some(2) => "cls",
            Some(_) => {
                return Err(self.file.unexpected(&key, "1, the mean, or 2, the first token"));
            }
        };
        self.set("classifier_pooling", key, name);
        Ok(())
    }
}
