//! Sounds of Granite Speech: HF `GraniteSpeechFeatureExtractor`, `GraniteSpeechProcessor`. Two
//! windows of a spectrogram are one state of the encoder, side by side.

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
use crate::model::audio::{EXTRACTOR_FILES, GraniteSounds};
use crate::model::config::{ConfigSource, Fields};
use crate::model_files;

/// The longest sound, in seconds: vLLM's `get_max_audio_len`.
const SECONDS_MAX: usize = 500;
/// The most windows of the spectrogram of the longest sound.
const WINDOWS_MAX: usize = 1 << 17;
/// Windows that become one state of the encoder.
const WINDOWS_OF_A_STATE: usize = 2;
/// The objects of the whole processor's config that may have the settings of the extractor.
const NESTED: [&str; 2] = ["audio_processor", "feature_extractor"];

/// The processor of one model.
pub(super) struct GraniteSpeech {
    sounds: GraniteSounds,
    placeholder_token: [TokenId; 1],
    extractor: MelExtractor,
}

impl GraniteSpeech {
    /// Reads the processor of the model in the folder `model`, whose `config.json` has the fields
    /// `outer`.
    ///
    /// # Errors
    /// [`ConfigError`] if a field of the tower or of the extractor has no valid value.
    pub(super) fn read(model: &Path, outer: &Fields) -> Result<Self, ConfigError> {
        let sounds = GraniteSounds::read(outer, 1)?;
        let extractor = extractor(&extractor_fields(model)?, &sounds)?;
        Ok(Self { placeholder_token: [sounds.placeholder], sounds, extractor })
    }

    /// Returns the states of the encoder for a sound of `num_samples`. An odd window is left out.
    fn num_states(&self, num_samples: usize) -> usize {
        let windows = num_samples / self.extractor.config().hop_length + 1;
        windows / WINDOWS_OF_A_STATE
    }

    /// Returns the longest sound, in samples.
    fn most_samples(&self) -> usize {
        self.extractor.config().num_samples()
    }
}

/// Returns the fields of the extractor. As in transformers, those in the config of the whole
/// processor go first.
fn extractor_fields(model: &Path) -> Result<Fields, ConfigError> {
    let [own, whole] = EXTRACTOR_FILES.map(|file| model.join(file));
    if model_files::exists(&whole) {
        let whole = ConfigSource::file(&whole)?;
        for name in NESTED {
            if let Some(fields) = whole.nested(name)? {
                return Ok(fields);
            }
        }
        if !model_files::exists(&own) {
            return Ok(whole);
        }
    }
    ConfigSource::file(&own)
}

/// Reads the form of spectrograms.
fn extractor(fields: &Fields, sounds: &GraniteSounds) -> Result<MelExtractor, ConfigError> {
    const FFT: &str = "n_fft";
    const WINDOW: &str = "win_length";
    const HOP: &str = "hop_length";
    const RATE: &str = "sampling_rate";
    const BINS: &str = "n_mels";
    let size = |field: &str, default: usize| {
        Ok::<usize, ConfigError>(fields.size(field)?.unwrap_or(default))
    };
    let (n_fft, win_length) = (size(FFT, 512)?, size(WINDOW, 400)?);
    if n_fft > 1 << 14 || !n_fft.is_multiple_of(2) {
        return Err(fields.invalid(FFT, "an even number from 2 to 16384"));
    }
    if win_length > n_fft {
        return Err(fields.invalid(WINDOW, &format!("at most {FFT}, {n_fft}")));
    }
    let (hop_length, num_bins) = (size(HOP, 160)?, size(BINS, 80)?);
    if hop_length > n_fft {
        return Err(fields.invalid(HOP, &format!("at most {FFT}, {n_fft}")));
    }
    if num_bins != sounds.num_mel_bins {
        let expected = format!("{}, half of input_dim of config.json", sounds.num_mel_bins);
        return Err(fields.invalid(BINS, &expected));
    }
    let rate = u32::try_from(size(RATE, 16_000)?).ok().filter(|rate| *rate <= 384_000);
    let rate = rate.ok_or_else(|| fields.invalid(RATE, "an integer from 1 to 384000"))?;
    let hop_min = (rate as usize * SECONDS_MAX).div_ceil(WINDOWS_MAX);
    if hop_length < hop_min {
        return Err(fields.invalid(HOP, &format!("at least {hop_min} at {rate} samples a second")));
    }
    for (field, default, expected) in [
        ("projector_window_size", 15, sounds.window),
        ("projector_downsample_rate", 5, sounds.downsample),
    ] {
        if size(field, default)? != expected {
            let expected = format!("{expected}, as in config.json");
            return Err(fields.invalid(field, &expected));
        }
    }
    // transformers writes this object, and reads the fields beside it alone.
    if let Some(written) = fields.nested("melspec_kwargs")? {
        for (field, read) in [
            (FFT, n_fft),
            (WINDOW, win_length),
            (HOP, hop_length),
            (BINS, num_bins),
            ("sample_rate", rate as usize),
        ] {
            if written.size(field)?.is_some_and(|found| found != read) {
                let expected = format!("{read}, which transformers reads beside melspec_kwargs");
                return Err(written.invalid(field, &expected));
            }
        }
    }
    let config = MelConfig { num_bins, rate, n_fft, hop_length, seconds: SECONDS_MAX };
    Ok(MelExtractor::htk(config, win_length))
}

impl FamilyProcessor for GraniteSpeech {
    fn modalities(&self) -> &[Modality] {
        &[Modality::Audio]
    }

    fn max_item_embeds(&self) -> usize {
        self.sounds.num_embeds(self.num_states(self.most_samples()))
    }

    /// As in vLLM, a prompt has one sound.
    fn most_items(&self) -> Option<usize> {
        Some(1)
    }

    fn placeholder(&self, _: Modality) -> &str {
        "<|audio|>"
    }

    fn placeholder_tokens(&self, _: Modality) -> &[TokenId] {
        &self.placeholder_token
    }

    fn tokens(&self, media: &ProcessedMedia) -> Vec<TokenId> {
        vec![self.sounds.placeholder; media.num_embeds]
    }

    fn is_placeholder(&self, token: TokenId) -> bool {
        token == self.sounds.placeholder
    }

    fn image(&self, _: &RgbImage, _: &Map<String, Value>) -> Result<ProcessedMedia, MediaError> {
        Err(MediaError::TooMany { modality: Modality::Image, limit: 0 })
    }

    fn sampling_rate(&self) -> u32 {
        self.extractor.config().rate
    }

    fn audio(&self, samples: &[f32], _: &Map<String, Value>) -> Result<ProcessedMedia, MediaError> {
        let (modality, config) = (Modality::Audio, self.extractor.config());
        if samples.len() > self.most_samples() {
            let size = samples.len().div_ceil(config.rate as usize) as u64;
            let limit = SECONDS_MAX as u64;
            return Err(MediaError::TooLarge { modality, size, unit: "seconds", limit });
        }
        let states = self.num_states(samples.len());
        // HF mirrors half of a transform at both ends, and a shorter sound has no such part.
        if states == 0 || samples.len() <= config.n_fft / 2 {
            let reason = "it is too short to have an embedding".to_owned();
            return Err(MediaError::Invalid { modality, reason });
        }
        let mel = self.extractor.spectrogram_to_end(samples);
        let num_windows = mel.len() / config.num_bins;
        let window = |at: usize| mel.iter().skip(at).step_by(num_windows);
        let values = (0..WINDOWS_OF_A_STATE * states).flat_map(window);
        let tensor = MediaTensor {
            shape: vec![states, WINDOWS_OF_A_STATE * config.num_bins],
            dtype: MediaDtype::F32,
            data: values.flat_map(|value| value.to_le_bytes()).collect(),
        };
        let num_embeds = self.sounds.num_embeds(states);
        Ok(ProcessedMedia { modality, tensors: vec![tensor], num_embeds, grid: None })
    }
}

#[cfg(test)]
#[path = "granite_speech_tests.rs"]
mod tests;
