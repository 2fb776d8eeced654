//! Whisper's sounds: HF `WhisperFeatureExtractor`. A prompt has no tokens for a sound.

use std::path::Path;

use image::RgbImage;
use playhouse_actors::{
    logic::request::{
        ids::TokenId,
        media::{MediaDtype, MediaTensor, Modality, ProcessedMedia},
    },
    ports::MediaError,
};
use serde_json::{Map, Value};

use crate::media::{
    audio::{MelConfig, MelExtractor},
    processor::FamilyProcessor,
};
use crate::model::ConfigError;
use crate::model::audio::EXTRACTOR_FILES;
use crate::model_files::{self, ModelFileError};

/// The fields of the whole processor's config that may have the settings.
const NESTED: [&str; 2] = ["feature_extractor", "audio_processor"];
/// Windows that become one state of the encoder.
const WINDOWS_OF_A_STATE: usize = 2;

/// Returns whether the model with these fields of `config.json` is Whisper.
pub(super) fn is_of(config: &Map<String, Value>) -> bool {
    let listed = config.get("architectures").and_then(Value::as_array);
    listed.is_some_and(|names| names.iter().any(|name| name == "WhisperForConditionalGeneration"))
}

/// Makes mel spectrograms of sounds.
pub(super) struct WhisperProcessor {
    extractor: MelExtractor,
}

impl WhisperProcessor {
    /// Reads the settings in the folder `model`.
    ///
    /// # Errors
    /// [`ConfigError`] if there is no file with them, or a field has no valid value.
    pub(super) fn load(model: &Path) -> Result<Self, ConfigError> {
        let (config, _) = settings(model)?;
        Ok(Self { extractor: MelExtractor::new(config) })
    }
}

/// Reads the extractor's settings in the folder `model`. The second result makes the error of a
/// field whose value other parts of the model do not accept.
///
/// # Errors
/// [`ConfigError`] if there is no file with them, or a field has no valid value.
pub(super) fn settings(
    model: &Path,
) -> Result<(MelConfig, impl Fn(&str, String) -> ConfigError), ConfigError> {
    let paths = EXTRACTOR_FILES.map(|file| model.join(file));
    let whole = model_files::exists(&paths[1]).then(|| json(&paths[1])).transpose()?;
    let nested = |whole: &Value| {
        let mut found = NESTED.iter().filter_map(|name| whole.get(name));
        found.find(|fields| !fields.is_null()).cloned()
    };
    // As in transformers, the settings in those of the whole processor go first.
    let (path, fields) = match (whole.as_ref().and_then(nested), whole) {
        (Some(fields), _) => (paths[1].clone(), fields),
        (None, Some(whole)) if !model_files::exists(&paths[0]) => (paths[1].clone(), whole),
        (None, _) => (paths[0].clone(), json(&paths[0])?),
    };
    let config = read(&fields, &path)?;
    let invalid = move |field: &str, expected: String| {
        let value = fields.get(field).unwrap_or(&Value::Null).to_string();
        ConfigError::Invalid { path: path.clone(), field: field.to_owned(), value, expected }
    };
    Ok((config, invalid))
}

/// Reads the file `path`.
///
/// # Errors
/// [`ConfigError`] if it cannot be read, or is not JSON.
pub(super) fn json(path: &Path) -> Result<Value, ConfigError> {
    let text = model_files::read(path).map_err(ModelFileError::read(path))?;
    serde_json::from_slice::<Value>(&text)
        .map_err(|error| ConfigError::Json { path: path.to_owned(), reason: error.to_string() })
}

/// Reads the extractor's settings from the file `path`.
fn read(fields: &Value, path: &Path) -> Result<MelConfig, ConfigError> {
    let invalid = |field: &str, expected: String| {
        let value = fields.get(field).unwrap_or(&Value::Null).to_string();
        ConfigError::Invalid { path: path.to_owned(), field: field.to_owned(), value, expected }
    };
    let size = |field: &str, default: u64, most: u64| {
        let value = fields.get(field).filter(|value| !value.is_null());
        let size = value.map_or(Some(default), Value::as_u64);
        let size = size.filter(|size| (1..=most).contains(size));
        size.ok_or_else(|| invalid(field, format!("an integer from 1 to {most}")))
    };
    // transformers reads `do_normalize` from its caller alone, and not from the file.
    if fields.get("dither").and_then(Value::as_f64).is_some_and(|dither| dither != 0.0) {
        return Err(invalid("dither", "0".to_owned()));
    }
    let n_fft = size("n_fft", 400, 1 << 14)?;
    let rate = size("sampling_rate", 16_000, 384_000)?;
    Ok(MelConfig {
        num_bins: size("feature_size", 80, 1024)? as usize,
        rate: rate as u32,
        n_fft: n_fft as usize,
        hop_length: size("hop_length", 160, n_fft)? as usize,
        seconds: size("chunk_length", 30, 600)? as usize,
    })
}

impl FamilyProcessor for WhisperProcessor {
    fn modalities(&self) -> &[Modality] {
        &[Modality::Audio]
    }

    fn max_item_embeds(&self) -> usize {
        self.extractor.config().num_windows() / WINDOWS_OF_A_STATE
    }

    fn placeholder(&self, _: Modality) -> &str {
        ""
    }

    fn placeholder_tokens(&self, _: Modality) -> &[TokenId] {
        &[]
    }

    fn tokens(&self, _: &ProcessedMedia) -> Vec<TokenId> {
        Vec::new()
    }

    fn is_placeholder(&self, _: TokenId) -> bool {
        false
    }

    fn is_attended(&self) -> bool {
        true
    }

    fn image(&self, _: &RgbImage, _: &Map<String, Value>) -> Result<ProcessedMedia, MediaError> {
        Err(MediaError::TooMany { modality: Modality::Image, limit: 0 })
    }

    fn sampling_rate(&self) -> u32 {
        self.extractor.config().rate
    }

    fn sound_seconds(&self) -> Option<u32> {
        u32::try_from(self.extractor.config().seconds).ok()
    }

    fn audio(&self, samples: &[f32], _: &Map<String, Value>) -> Result<ProcessedMedia, MediaError> {
        let config = self.extractor.config();
        let data = self.extractor.spectrogram(samples);
        let tensor = MediaTensor {
            shape: vec![config.num_bins, config.num_windows()],
            dtype: MediaDtype::F32,
            data: data.iter().flat_map(|value| value.to_le_bytes()).collect(),
        };
        Ok(ProcessedMedia {
            modality: Modality::Audio,
            tensors: vec![tensor],
            num_embeds: self.max_item_embeds(),
            grid: None,
        })
    }
}

#[cfg(test)]
#[path = "whisper_tests.rs"]
mod tests;
