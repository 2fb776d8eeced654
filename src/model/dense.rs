//! The dense decoders of this crate as entries of the registry: data for one shared decoder.

use std::sync::Arc;

use super::config::{ConfigError, ModelConfig};
use super::family::Family;
use super::pooling::{self, HeadPlan, Origin};
use super::registry::ModelFamily;
use super::source::Expected;
use super::{Model, ModelError, ModelSource, decoder, inventory};
use crate::weights::{Checkpoint, StoredDtype};

/// A family whose models are the decoder of [`decoder`], with the heads of an architecture.
pub(super) struct DenseFamily {
    pub(super) family: &'static Family,
    /// The entry of `architectures`.
    pub(super) architecture: String,
    pub(super) origin: Origin,
}

impl DenseFamily {
    /// Returns the family of causal language models.
    pub(super) fn of_language(architecture: &str, family: &'static Family) -> Self {
        Self { family, architecture: architecture.to_owned(), origin: Origin::CausalLm }
    }
}

impl ModelFamily for DenseFamily {
    fn load(&self, source: &mut ModelSource<'_>) -> Result<Model, ModelError> {
        let heads = HeadPlan::new(source.path(), source.config(), self.origin, source.options)?;
        let length = max_model_len(source, heads.max_seq_length)?;
        let mut config = ModelConfig::of_family(source.config, self.family, length)?;
        config.has_lm_head = heads.lm_head;
        config.num_classes = heads.num_classes();
        let check = |checkpoint: &Checkpoint| {
            inventory::check(&config, checkpoint)?;
            stored_dtype(&config, checkpoint)
        };
        let expected = Expected {
            quantization: config.quantization.as_ref(),
            dummy: config.dtype.unwrap_or(StoredDtype::Bf16),
            base: config.names.base(),
        };
        let pooler = heads.pooler;
        source.load_checkpoint(expected, check, |loader| {
            let mut model = decoder::load(&config, loader)?;
            model.architecture.clone_from(&self.architecture);
            let pooler = pooler.map(|plan| pooling::load(plan, config.embedding_width(), loader));
            model.pooler = pooler.transpose()?.map(Arc::new);
            Ok(model)
        })
    }
}

/// Returns the context to ask for: the setting, or by default the limit of sentence-transformers.
fn max_model_len(
    source: &ModelSource<'_>,
    limit: Option<usize>,
) -> Result<Option<usize>, ModelError> {
    match (source.options.max_model_len, limit) {
        (Some(requested), Some(limit)) if requested > limit => {
            let path = source.path().join("sentence_bert_config.json");
            Err(ConfigError::MaxModelLen { path, requested, limit }.into())
        }
        (Some(requested), _) => Ok(Some(requested)),
        // The positions of the model may be fewer.
        (None, Some(limit)) => {
            let positions = source.config.fields().size("max_position_embeddings")?;
            Ok(Some(positions.map_or(limit, |positions| positions.min(limit))))
        }
        (None, None) => Ok(None),
    }
}

/// Returns the dtype of the weights by `config.json`, or by default the dtype of the embedding.
fn stored_dtype(config: &ModelConfig, checkpoint: &Checkpoint) -> Result<StoredDtype, ModelError> {
    let embedding = config.names.embed_tokens;
    match config.dtype {
        // The three bits of precision that float16 has more than bfloat16 do not matter beside
        // quantized weights.
        _ if config.quantization.is_some() || checkpoint.is_quantized(embedding) => {
            Ok(config.dtype.filter(|dtype| *dtype == StoredDtype::F32).unwrap_or(StoredDtype::Bf16))
        }
        Some(dtype) => Ok(dtype),
        None => {
            let name = format!("{embedding}.weight");
            let shape = [config.vocab_size, config.embedding_width()];
            Ok(checkpoint.tensor(&name, &shape)?.dtype())
        }
    }
}
