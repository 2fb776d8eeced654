//! Sounds of models that answer about them: Qwen2-Audio and Voxtral (HF `Qwen2AudioProcessor`,
//! `VoxtralProcessor`).

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

use super::whisper;
use crate::media::{
    audio::{MelConfig, MelExtractor},
    processor::FamilyProcessor,
};
use crate::model::ConfigError;
use crate::model::audio::{AudioFamily, Sounds};
use crate::model::config::Fields;

/// The longest sound of Voxtral, in spectrograms. It was trained for 40 minutes.
const SPECTROGRAMS_MAX: usize = 80;

/// The processor of one model.
pub(super) struct Hearing {
    sounds: Sounds,
    placeholder_token: [TokenId; 1],
    extractor: MelExtractor,
}

impl Hearing {
    /// Reads the processor of the model in the folder `model`, whose `config.json` has the fields
    /// `outer`.
    pub(super) fn read(
        family: AudioFamily,
        model: &Path,
        outer: &Fields,
    ) -> Result<Self, ConfigError> {
        let sounds = Sounds::read(family, outer)?;
        let (config, invalid) = whisper::settings(model)?;
        if config.num_bins != sounds.num_mel_bins {
            let expected = format!("{}, num_mel_bins of config.json", sounds.num_mel_bins);
            return Err(invalid("feature_size", expected));
        }
        if config.num_windows() != 2 * sounds.num_frames {
            let seconds = 2 * sounds.num_frames * config.hop_length / config.rate as usize;
            let expected = format!("{seconds} seconds, by max_source_positions of config.json");
            return Err(invalid("chunk_length", expected));
        }
        let placeholder_token = [sounds.placeholder];
        Ok(Self { sounds, placeholder_token, extractor: MelExtractor::new(config) })
    }

    /// Returns the spectrogram of a sound, and its number of frames that hold sound.
    fn one(&self, samples: &[f32]) -> Result<ProcessedMedia, MediaError> {
        let config = self.extractor.config();
        let samples = &samples[..samples.len().min(config.num_samples())];
        let num_windows = samples.len().div_ceil(config.hop_length);
        let num_frames = num_windows.div_ceil(2);
        let num_embeds = num_frames / self.sounds.merge;
        if num_embeds == 0 {
            return Err(invalid("it is too short to have an embedding"));
        }
        let frames = MediaTensor {
            shape: vec![num_frames],
            dtype: MediaDtype::F32,
            data: Vec::new().into(),
        };
        let mel = tensor(config, &self.extractor.spectrogram(samples));
        Ok(media(vec![mel, frames], num_embeds))
    }

    /// Returns the spectrograms of all parts of a sound. The last part is filled with silence.
    fn all(&self, samples: &[f32]) -> Result<ProcessedMedia, MediaError> {
        let config = self.extractor.config();
        let count = samples.len().div_ceil(config.num_samples());
        if count > SPECTROGRAMS_MAX {
            let (size, limit) = (count * config.seconds, SPECTROGRAMS_MAX * config.seconds);
            let (size, limit) = (size as u64, limit as u64);
            return Err(MediaError::TooLarge {
                modality: Modality::Audio,
                size,
                unit: "seconds",
                limit,
            });
        }
        if count == 0 {
            return Err(invalid("it is empty"));
        }
        let whole = self.extractor.spectrogram_of(samples, count * config.num_samples());
        let times = config.num_windows();
        let part = |index: usize| {
            let bins = whole.chunks_exact(count * times);
            let bins = bins.flat_map(|bin| &bin[index * times..(index + 1) * times]);
            tensor(config, &bins.copied().collect::<Vec<f32>>())
        };
        let num_embeds = count * self.sounds.num_frames / self.sounds.merge;
        Ok(media((0..count).map(part).collect(), num_embeds))
    }
}

/// Returns the tensor of a spectrogram.
fn tensor(config: &MelConfig, values: &[f32]) -> MediaTensor {
    MediaTensor {
        shape: vec![config.num_bins, config.num_windows()],
        dtype: MediaDtype::F32,
        data: values.iter().flat_map(|value| value.to_le_bytes()).collect(),
    }
}

fn media(tensors: Vec<MediaTensor>, num_embeds: usize) -> ProcessedMedia {
    ProcessedMedia { modality: Modality::Audio, tensors, num_embeds, grid: None }
}

fn invalid(reason: &str) -> MediaError {
    MediaError::Invalid { modality: Modality::Audio, reason: reason.to_owned() }
}

impl FamilyProcessor for Hearing {
    fn modalities(&self) -> &[Modality] {
        &[Modality::Audio]
    }

    fn max_item_embeds(&self) -> usize {
        let of_one = self.sounds.num_frames / self.sounds.merge;
        match self.sounds.family {
            AudioFamily::Qwen2Audio => of_one,
            AudioFamily::Voxtral => SPECTROGRAMS_MAX * of_one,
        }
    }

    fn placeholder(&self, _modality: Modality) -> &str {
        match self.sounds.family {
            AudioFamily::Qwen2Audio => "<|audio_bos|><|AUDIO|><|audio_eos|>",
            AudioFamily::Voxtral => "[BEGIN_AUDIO][AUDIO]",
        }
    }

    fn numbered_placeholder(&self, modality: Modality, index: usize) -> String {
        let placeholder = self.placeholder(modality);
        match self.sounds.family {
            AudioFamily::Qwen2Audio => format!("Audio {}: {placeholder}", index + 1),
            AudioFamily::Voxtral => placeholder.to_owned(),
        }
    }

    fn placeholder_tokens(&self, _modality: Modality) -> &[TokenId] {
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

    fn sound_seconds(&self) -> Option<u32> {
        match self.sounds.family {
            AudioFamily::Qwen2Audio => None,
            AudioFamily::Voxtral => {
                u32::try_from(SPECTROGRAMS_MAX * self.extractor.config().seconds).ok()
            }
        }
    }

    fn audio(&self, samples: &[f32], _: &Map<String, Value>) -> Result<ProcessedMedia, MediaError> {
        match self.sounds.family {
            AudioFamily::Qwen2Audio => self.one(samples),
            AudioFamily::Voxtral => self.all(samples),
        }
    }
}

#[cfg(test)]
#[path = "hearing_tests.rs"]
mod tests;
