//! Whisper (<https://arxiv.org/abs/2212.04356>): HF `WhisperForConditionalGeneration`.
//!
//! | tensor | shape |
//! |---|---|
//! | mel spectrogram | `[num_mel_bins, 2 * num_frames]` |
//! | states of the encoder | `[num_frames, hidden_size]` |
//! | [`EncoderOutput::by_layer`](crate::model::EncoderOutput::by_layer): keys and values of each layer of the decoder, in turn | `[num_frames, hidden_size]` each |
//! | hidden states of the decoder | `[num_tokens, hidden_size]` |
//!
//! All tokens of a sequence attend to the whole sound, so its keys and values are computed once,
//! with the states.

mod config;
mod decoder;
mod encoder;

use std::sync::Arc;

use self::config::WhisperConfig;
use self::decoder::Decoder;
use self::encoder::Encoder;
use crate::model::config::LogitsConfig;
use crate::model::layers::{Embedding, LinearHead};
use crate::model::weight_loader::WeightLoader;
use crate::model::{KvLayers, Model, ModelError, ModelFamily, ModelSource};

/// The entry in `architectures`.
pub(super) const ARCHITECTURE: &str = "WhisperForConditionalGeneration";

/// The `model_type`.
pub(super) const MODEL_TYPE: &str = "whisper";

/// The table of tokens, which is also the output layer if it is tied.
const TABLE: &str = "model.decoder.embed_tokens";

/// The output layer.
const HEAD: &str = "proj_out";

/// The family.
pub(super) struct Whisper;

impl ModelFamily for Whisper {
    fn load(&self, source: &mut ModelSource<'_>) -> Result<Model, ModelError> {
        let config = WhisperConfig::read(source)?;
        source.load_weights(config.stored, |loader| load(loader, &config))
    }
}

fn load(loader: &mut WeightLoader<'_>, config: &WhisperConfig) -> Result<Model, ModelError> {
    let shape = [config.vocab_size, config.hidden_size];
    let module = if config.is_tied { TABLE } else { HEAD };
    let logits = LogitsConfig { multiplier: 1.0, divisor: 1.0, soft_cap: None, has_bias: false };
    let lm_head = LinearHead::load(loader, module, HEAD, shape, logits)?;
    let embed_tokens = match lm_head.shared_rows().filter(|_| config.is_tied) {
        Some(weight) => Embedding::Tied(weight),
        None => Embedding::load(loader, TABLE, config.vocab_size, config.hidden_size)?,
    };
    let decoder = Decoder::load(loader, config, embed_tokens)?;
    let encoder = Encoder::load(loader, config)?;
    let of_decoder = &config.decoder;
    let head_dim = config.hidden_size / of_decoder.num_heads;
    Ok(Model {
        architecture: ARCHITECTURE.to_owned(),
        vocab_size: config.vocab_size,
        max_model_len: config.max_model_len,
        eos_token_ids: config.eos_token_ids.clone(),
        kv_layers: KvLayers::full(of_decoder.num_layers, of_decoder.num_heads, head_dim),
        dtype: loader.dtype(),
        quantized_weights: loader.quantized_weights().cloned(),
        adapter_sites: Arc::default(),
        backbone: Arc::new(decoder),
        lm_head: Some(Arc::new(lm_head)),
        pooler: None,
        media: Some(Arc::new(encoder)),
    })
}
