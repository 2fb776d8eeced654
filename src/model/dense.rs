//! The dense decoders of this crate as entries of the registry: data for one shared decoder.

use super::config::ModelConfig;
use super::family::Family;
use super::registry::ModelFamily;
use super::source::Expected;
use super::{Model, ModelError, ModelSource, decoder, inventory};
use crate::weights::{Checkpoint, StoredDtype};

/// A family whose models are the decoder of [`decoder`].
pub(super) struct DenseFamily(pub(super) &'static Family);

impl ModelFamily for DenseFamily {
    fn load(&self, source: &mut ModelSource<'_>) -> Result<Model, ModelError> {
        let config = ModelConfig::of_family(source.config, self.0, source.options.max_model_len)?;
        let check = |checkpoint: &Checkpoint| {
            inventory::check(&config, checkpoint)?;
            stored_dtype(&config, checkpoint)
        };
        let expected = Expected {
            quantization: config.quantization.as_ref(),
            dummy: config.dtype.unwrap_or(StoredDtype::Bf16),
            base: config.names.base(),
        };
        source.load_checkpoint(expected, check, |loader| decoder::load(&config, loader))
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
