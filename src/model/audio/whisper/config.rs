//! The fields of `config.json`: HF `WhisperConfig`.

use playhouse_kernels::Activation;

use super::MODEL_TYPE;
use crate::model::config::{ConfigError, stored_dtype};
use crate::model::encoder_decoder::{StackConfig, activation};
use crate::model::{ModelSource, StoredDtype};

/// A model's sizes.
#[derive(Debug)]
pub(super) struct WhisperConfig {
    pub(super) vocab_size: usize,
    pub(super) hidden_size: usize,
    pub(super) num_mel_bins: usize,
    /// States of a sound.
    pub(super) num_frames: usize,
    /// Rows of the decoder's table of positions.
    pub(super) num_positions: usize,
    pub(super) max_model_len: usize,
    pub(super) encoder: StackConfig,
    pub(super) decoder: StackConfig,
    pub(super) activation: Activation,
    pub(super) is_tied: bool,
    pub(super) eos_token_ids: Vec<u32>,
    pub(super) stored: StoredDtype,
}

impl WhisperConfig {
    pub(super) fn read(source: &ModelSource<'_>) -> Result<Self, ConfigError> {
        let fields = source.fields();
        if fields.text("model_type")?.is_some_and(|model_type| model_type != MODEL_TYPE) {
            return Err(fields.invalid("model_type", "\"whisper\", as `architectures` says"));
        }
        if fields.value("quantization_config").is_some() {
            let expected = "nothing: this class has no quantized checkpoints; use `quantization`";
            return Err(fields.invalid("quantization_config", expected));
        }
        let hidden_size = fields.required_size("d_model")?;
        let num_positions = fields.required_size("max_target_positions")?;
        Ok(Self {
            vocab_size: fields.required_size("vocab_size")?,
            hidden_size,
            num_mel_bins: fields.required_size("num_mel_bins")?,
            num_frames: fields.required_size("max_source_positions")?,
            num_positions,
            max_model_len: source.max_model_len(num_positions)?,
            encoder: StackConfig::read(fields, "encoder", hidden_size)?,
            decoder: StackConfig::read(fields, "decoder", hidden_size)?,
            activation: activation(fields)?,
            is_tied: fields.flag_or("tie_word_embeddings", true)?,
            eos_token_ids: fields.token_ids("eos_token_id")?,
            stored: stored_dtype(fields)?.unwrap_or(StoredDtype::F32),
        })
    }
}
