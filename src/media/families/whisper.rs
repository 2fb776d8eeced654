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
use crate::model_files::{self, ModelFileError};

/// The files that may have the extractor's settings: those of transformers 4 and 5.
const FILES: [&str; 2] = ["preprocessor_config.json", "processor_config.json"];

/// Windows that become one state of the encoder.
const WINDOWS_OF_A_STATE: usize = 2;

/// Makes mel spectrograms of sounds.
pub(crate) struct WhisperProcessor {
    extractor: MelExtractor,
}

impl WhisperProcessor {
    /// Reads the settings in the folder `model`.
    ///
    /// # Errors
    /// A message for the operator, which names the file and the field at fault.
    pub(crate) fn load(model: &Path) -> Result<Self, String> {
        let file = FILES.iter().map(|file| model.join(file)).find(|file| model_files::exists(file));
        let file = file.ok_or_else(|| format!("{}: there is no {}", model.display(), FILES[0]))?;
        let text = model_files::read(&file)
            .map_err(|error| ModelFileError::read(&file)(error).to_string())?;
        let json = serde_json::from_slice::<Value>(&text);
        let json = json.map_err(|error| format!("{}: not JSON: {error}", file.display()))?;
        let fields = json.get("feature_extractor").unwrap_or(&json);
        let config = read(fields).map_err(|why| format!("{}: {why}", file.display()))?;
        Ok(Self { extractor: MelExtractor::new(config) })
    }
}

/// Reads the extractor's settings.
fn read(fields: &Value) -> Result<MelConfig, String> {
    let size = |field: &str, default: u64, most: u64| {
        let value = fields.get(field).filter(|value| !value.is_null());
        let size = value.map_or(Some(default), Value::as_u64);
        let size = size.filter(|size| (1..=most).contains(size));
        size.ok_or_else(|| {
            let value = value.unwrap_or(&Value::Null);
            format!("`{field}` is {value}; expected an integer from 1 to {most}")
        })
    };
    if fields.get("do_normalize").and_then(Value::as_bool) == Some(true) {
        return Err("`do_normalize` is true; expected false".to_owned());
    }
    if fields.get("dither").and_then(Value::as_f64).is_some_and(|dither| dither != 0.0) {
        return Err("`dither` is not supported; expected 0".to_owned());
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
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn settings_have_the_defaults_of_transformers() {
        let config = read(&json!({})).unwrap();
        let expected =
            MelConfig { num_bins: 80, rate: 16_000, n_fft: 400, hop_length: 160, seconds: 30 };
        assert_eq!(config, expected);
        assert_eq!(read(&json!({"feature_size": 128})).unwrap().num_bins, 128);
        let why = read(&json!({"hop_length": 0})).unwrap_err();
        assert_eq!(why, "`hop_length` is 0; expected an integer from 1 to 400");
    }
}
