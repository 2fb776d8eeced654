//! The decoders of this crate as entries of the registry: data for one shared decoder.

use super::config::ModelConfig;
use super::families::Entry;
use super::registry::ModelFamily;
use super::source::Expected;
use super::{Model, ModelError, ModelSource, decoder, inventory};
use crate::weights::{Checkpoint, StoredDtype};

/// A family whose models are the decoder of [`decoder`], or a multimodal class with a model of one.
pub(super) struct DenseFamily(pub(super) Entry);

impl ModelFamily for DenseFamily {
    fn load(&self, source: &mut ModelSource<'_>) -> Result<Model, ModelError> {
        let config = ModelConfig::of_entry(source.config, self.0, source.options.max_model_len)?;
        let quantization = config.quantization.clone();
        let expected = Expected {
            quantization: quantization.as_ref(),
            dummy: config.dtype.unwrap_or(StoredDtype::Bf16),
            base: if config.wrapped.is_some() { "" } else { config.names.base() },
        };
        let check = |checkpoint: &Checkpoint| {
            let config = config.fit(checkpoint);
            inventory::check(&config, checkpoint)?;
            let dtype = stored_dtype(&config, checkpoint)?;
            Ok((config, dtype))
        };
        source.load_checkpoint(expected, check, |config, loader| decoder::load(&config, loader))
    }
}

/// Returns the dtype of the weights by `config.json`, or by default the dtype of the embedding.
fn stored_dtype(config: &ModelConfig, checkpoint: &Checkpoint) -> Result<StoredDtype, ModelError> {
    let embedding = config.names.stored(config.names.embed_tokens);
    match config.dtype {
        // The three bits of precision that float16 has more than bfloat16 do not matter beside
        // quantized weights.
        _ if config.quantization.is_some() || checkpoint.is_quantized(&embedding) => {
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
