//! `StaticEmbedding` of sentence-transformers: the vector of a text is the mean of the rows of its
//! tokens. There are no layers, and the order of tokens does not count. Model2Vec's models have
//! this form, too.
//!
//! | tensor | shape |
//! |---|---|
//! | `embedding.weight`, or Model2Vec's `embeddings` | `[rows, width]` |
//! | `mapping`: the row of each token | `[vocab_size]` |
//! | `weights`: the factor of each token | `[vocab_size]` |
//!
//! Without the last two, each token has its own row, and no factor.

use std::path::Path;
use std::sync::Arc;

use burn::tensor::Tensor;
use playhouse_kernels::{EmbeddingTable, WeightView, embedding};
use serde_json::Value;

use super::config::POSITIONS_MAX;
use super::pooling::{self, HeadPlan, Origin};
use super::source::Expected;
use super::supported::SupportedModels;
use super::weight_loader::refused;
use super::{
    Adapters, Backbone, ConfigError, KvLayers, Model, ModelError, ModelFamily, ModelSource,
    Positions, Step, WeightLoader,
};
use crate::model_files::{self, ModelFileError};
use crate::weights::{Checkpoint, StoredDtype, WeightsError};

/// The class, in the place of an entry of `architectures`.
pub(super) const ARCHITECTURE: &str = "StaticEmbedding";
/// The names of the table: that of sentence-transformers, then Model2Vec's.
const TABLES: [&str; 2] = ["embedding.weight", "embeddings"];
const MAPPING: &str = "mapping";
const WEIGHTS: &str = "weights";
/// The longest text by default, in tokens. Any length is possible, and a step computes a text
/// whole.
const CONTEXT: usize = 8_192;

/// Returns the family by its name in the registry.
pub(super) fn families() -> impl Iterator<Item = (&'static str, Arc<dyn ModelFamily>)> {
    let family: Arc<dyn ModelFamily> = Arc::new(StaticEmbeddings);
    std::iter::once((ARCHITECTURE, family))
}

/// Returns its entry in the list of supported models.
pub(super) fn supported() -> SupportedModels {
    SupportedModels {
        architecture: ARCHITECTURE,
        model_type: "model2vec",
        models: "Potion and other Model2Vec models, static-retrieval-mrl, static-similarity-mrl",
        options: vec!["vectors: the mean of the tokens' rows, without layers".to_owned()],
    }
}

/// The models of sentence-transformers whose first module is a table.
#[derive(Debug)]
struct StaticEmbeddings;

impl ModelFamily for StaticEmbeddings {
    fn load(&self, source: &mut ModelSource<'_>) -> Result<Model, ModelError> {
        let heads = HeadPlan::new(source.path(), source.config(), Origin::Backbone, source.options);
        let plan = heads?.pooler;
        let folder = plan.as_ref().and_then(|plan| plan.files.table.clone());
        let (Some(plan), Some(folder)) = (plan, folder) else {
            let why = "the first module of modules.json is none";
            return Err(ModelError::Heads { setting: "architectures", value: ARCHITECTURE, why });
        };
        let limit = truncation(&folder.join("tokenizer.json"))?.unwrap_or(POSITIONS_MAX);
        let max_model_len = match source.options.max_model_len {
            None => limit.min(CONTEXT),
            Some(_) => source.max_model_len(limit)?,
        };
        let expected = Expected::dense(StoredDtype::F32);
        let mut inside = ModelSource {
            model: &folder,
            config: source.config,
            options: source.options,
            progress: &mut *source.progress,
        };
        inside.load_checkpoint(expected, Stored::of, |stored, loader| {
            let (table, vocab_size) = stored.load(loader)?;
            let pooler = pooling::of_vectors(plan, stored.shape[1], max_model_len)?;
            Ok(Model {
                architecture: ARCHITECTURE.to_owned(),
                vocab_size,
                max_model_len,
                eos_token_ids: Vec::new(),
                kv_layers: KvLayers {
                    windows: Vec::new(),
                    num_kv_heads: 0,
                    head_dim: 0,
                    value_prefix: None,
                },
                dtype: loader.dtype(),
                quantized_weights: loader.quantized_weights().cloned(),
                adapter_sites: Arc::default(),
                backbone: Arc::new(Table(table)),
                lm_head: None,
                pooler: Some(Arc::new(pooler)),
                media: None,
            })
        })
    }
}

/// The rows of all tokens.
#[derive(Debug)]
struct Table(EmbeddingTable);

impl Backbone for Table {
    fn embed(&self, token_ids: &[u32], _: Adapters<'_>) -> Tensor<2> {
        embedding(&self.0, token_ids)
    }

    fn forward(&self, hidden: Tensor<2>, _: Positions<'_>, _: &mut Step<'_>) -> Tensor<2> {
        hidden
    }
}

/// The tensors of a checkpoint.
struct Stored {
    table: &'static str,
    /// Of the table.
    shape: [usize; 2],
    /// The lengths of [`MAPPING`] and [`WEIGHTS`], if they are there.
    mapping: Option<usize>,
    weights: Option<usize>,
}

impl Stored {
    /// Finds the tensors. Returns them with the type of the table.
    fn of(checkpoint: &Checkpoint) -> Result<(Self, StoredDtype), ModelError> {
        let found = TABLES.iter().find_map(|name| match checkpoint.shape(name) {
            Some(&[rows, width]) => Some((*name, [rows, width])),
            _ => None,
        });
        let Some((table, shape)) = found else {
            // Dummy weights have no shapes.
            checkpoint.require_shape(TABLES[0], &[1, 1])?;
            let why = "a table without layers has no sizes in a config";
            return Err(ModelError::Heads { setting: "load_format", value: "dummy", why });
        };
        let length = |name: &str| checkpoint.shape(name).and_then(|shape| shape.first().copied());
        let stored = Self { table, shape, mapping: length(MAPPING), weights: length(WEIGHTS) };
        Ok((stored, checkpoint.tensor(table, &shape)?.dtype()))
    }

    /// Returns the table with a row for each token, and their number.
    fn load(&self, loader: &mut WeightLoader<'_>) -> Result<(EmbeddingTable, usize), ModelError> {
        let [rows, width] = self.shape;
        let made = |loader: &WeightLoader<'_>, view: WeightView<'_>, count: usize| {
            let table = EmbeddingTable::new(view, count, width, loader.dtype(), loader.device());
            table.map(|table| (table, count)).map_err(refused(self.table))
        };
        if self.mapping.is_none() && self.weights.is_none() {
            let tensor = loader.tensor(self.table, &self.shape)?;
            let values = tensor.values();
            let table = made(&*loader, values.view(), rows)?;
            drop(values);
            loader.loaded(&tensor);
            return Ok(table);
        }
        let invalid = |loader: &WeightLoader<'_>, name: &str, reason: String| {
            let (path, tensor) = (loader.path_of(name), name.to_owned());
            ModelError::from(WeightsError::Value { path, tensor, reason })
        };
        let stored = loader.values(self.table, &self.shape)?;
        let mapping = match self.mapping {
            None => (0..rows as i64).collect(),
            Some(len) => loader.integers(MAPPING, len)?,
        };
        let weights = match self.weights {
            None => vec![1.0; mapping.len()],
            Some(len) => loader.values(WEIGHTS, &[len])?,
        };
        if weights.len() != mapping.len() {
            let reason = format!("{} factors; expected {}", weights.len(), mapping.len());
            return Err(invalid(&*loader, WEIGHTS, reason));
        }
        let mut values = Vec::with_capacity(mapping.len() * width);
        for (row, weight) in mapping.iter().zip(&weights) {
            let found = usize::try_from(*row).ok().filter(|row| *row < rows);
            let Some(row) = found else {
                let reason = format!("the row {row}; expected one below {rows}");
                return Err(invalid(&*loader, MAPPING, reason));
            };
            values.extend(stored[row * width..(row + 1) * width].iter().map(|x| x * weight));
        }
        made(&*loader, WeightView::F32(&values), mapping.len())
    }
}

/// Returns the number of tokens at which the tokenizer cuts texts, which sentence-transformers
/// follows.
fn truncation(path: &Path) -> Result<Option<usize>, ConfigError> {
    let text = model_files::read(path).map_err(ModelFileError::read(path))?;
    let tokenizer: Value = serde_json::from_slice(&text).map_err(|error| {
        let (path, reason) = (path.to_owned(), error.to_string());
        ConfigError::Json { path, reason }
    })?;
    let most = tokenizer["truncation"]["max_length"].as_u64();
    Ok(most.and_then(|most| usize::try_from(most).ok()).filter(|most| *most > 0))
}
