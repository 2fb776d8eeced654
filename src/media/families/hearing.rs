//! Sounds of models that answer about them: HF `Qwen2AudioProcessor`, `VoxtralProcessor`,
//! `AudioFlamingo3Processor`, `MusicFlamingoProcessor`, `GlmAsrProcessor`, `Qwen2_5OmniProcessor`,
//! `Qwen3ASRProcessor` and `Qwen3OmniMoeProcessor`.

use std::ops::Range;
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
    audio::{MelConfig, MelExtractor, SECONDS_MAX},
    processor::FamilyProcessor,
};
use crate::model::ConfigError;
use crate::model::audio::{AudioFamily, EXTRACTOR_FILES, Sounds, TIMES, num_states};
use crate::model::config::Fields;
use crate::model_files;

/// The longest sound of Voxtral, in spectrograms. It was trained for 40 minutes.
const SPECTROGRAMS_MAX: usize = 80;

/// The longest sounds of Audio Flamingo 3, Music Flamingo and GLM-ASR, in seconds, if their files
/// do not say.
const AUDIO_FLAMINGO_3_SECONDS: f64 = 600.0;
const MUSIC_FLAMINGO_SECONDS: f64 = 1_200.0;
const GLM_ASR_SECONDS: f64 = 655.0;

/// The longest sound of Qwen3-ASR, in seconds. Its authors name 20 minutes.
const QWEN3_ASR_SECONDS: usize = 1_200;

/// The longest sound of Qwen3-Omni, in seconds. Its authors name 40 minutes.
const QWEN3_OMNI_SECONDS: usize = 2_400;

/// Samples to which HF `Qwen3ASRFeatureExtractor` fills shorter sounds.
const QWEN3_ASR_SAMPLES_MIN: usize = 8_000;

/// The processor of one model.
pub(super) struct Hearing {
    sounds: Sounds,
    placeholder_token: [TokenId; 1],
    extractor: MelExtractor,
    /// The most spectrograms of a sound.
    spectrograms_max: usize,
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
        let is_in_parts = matches!(
            family,
            AudioFamily::Qwen2_5Omni | AudioFamily::Qwen3Asr | AudioFamily::Qwen3Omni
        );
        if config.num_windows() != 2 * sounds.num_frames && !is_in_parts {
            let seconds = 2 * sounds.num_frames * config.hop_length / config.rate as usize;
            let expected = format!("{seconds} seconds, by the positions of config.json");
            return Err(invalid("chunk_length", expected));
        }
        let parts_of = |seconds: usize| {
            let samples = seconds * config.rate as usize;
            (samples / config.hop_length).div_ceil(TIMES)
        };
        let spectrograms_max = match family {
            AudioFamily::Qwen2Audio => 1,
            AudioFamily::Voxtral => SPECTROGRAMS_MAX,
            AudioFamily::AudioFlamingo3 => {
                spectrograms_max(model, &config, AUDIO_FLAMINGO_3_SECONDS)?
            }
            AudioFamily::MusicFlamingo => spectrograms_max(model, &config, MUSIC_FLAMINGO_SECONDS)?,
            AudioFamily::GlmAsr => spectrograms_max(model, &config, GLM_ASR_SECONDS)?,
            AudioFamily::Qwen2_5Omni => config.num_windows().div_ceil(2 * sounds.num_frames),
            AudioFamily::Qwen3Asr => {
                const LEAST: &str = "min_length";
                if extractor_field(model, LEAST)?.is_some_and(|it| it != QWEN3_ASR_SAMPLES_MIN) {
                    return Err(invalid(LEAST, QWEN3_ASR_SAMPLES_MIN.to_string()));
                }
                parts_of(QWEN3_ASR_SECONDS)
            }
            AudioFamily::Qwen3Omni => parts_of(QWEN3_OMNI_SECONDS),
        };
        let placeholder_token = [sounds.placeholder];
        let extractor = MelExtractor::new(config);
        Ok(Self { sounds, placeholder_token, extractor, spectrograms_max })
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
        let mel = tensor(config, &self.extractor.spectrogram(samples));
        Ok(media(vec![mel, frames(num_frames)], num_embeds))
    }

    /// Returns the parts of a sound's spectrogram. The last is as long as the sound. HF truncates
    /// longer sounds than the extractor's.
    fn in_windows(&self, samples: &[f32]) -> Result<ProcessedMedia, MediaError> {
        let config = self.extractor.config();
        let samples = &samples[..samples.len().min(config.num_samples())];
        let num_windows = samples.len().div_ceil(config.hop_length);
        let num_embeds = num_windows.div_ceil(2) / self.sounds.merge;
        if num_embeds == 0 {
            return Err(invalid("it is too short to have an embedding"));
        }
        // HF fills the sound with silence to the extractor's length. Windows without a sample of
        // the sound do not matter, and neither does the mirrored end.
        let silence = config.n_fft.div_ceil(config.hop_length);
        let times = (num_windows + silence).min(config.num_windows());
        let whole = self.extractor.spectrogram_of(samples, times * config.hop_length);
        let most = 2 * self.sounds.num_frames;
        let starts = (0..num_windows).step_by(most);
        let part =
            |start: usize| part(config, &whole, times, start..(start + most).min(num_windows));
        Ok(media(starts.map(part).collect(), num_embeds))
    }

    /// Returns the spectrograms of the first parts of a sound. Each is filled with silence. The
    /// number of frames of the last one that hold sound follows.
    fn parts(&self, samples: &[f32]) -> Result<ProcessedMedia, MediaError> {
        let config = self.extractor.config();
        let most = self.spectrograms_max * config.num_samples();
        let samples = &samples[..samples.len().min(most)];
        let parts: Vec<&[f32]> = samples.chunks(config.num_samples()).collect();
        let Some((last, whole)) = parts.split_last() else { return Err(invalid("it is empty")) };
        let last = last.len().div_ceil(config.hop_length).div_ceil(2);
        let num_embeds = (whole.len() * self.sounds.num_frames + last) / self.sounds.merge;
        if num_embeds == 0 {
            return Err(invalid("it is too short to have an embedding"));
        }
        let mels = parts.iter().map(|part| tensor(config, &self.extractor.spectrogram(part)));
        Ok(media(mels.chain([frames(last)]).collect(), num_embeds))
    }

    /// Returns the parts of a sound's spectrogram, which ends with the last whole window of it. A
    /// sound of fewer samples than `least` is filled with silence.
    fn ended(&self, samples: &[f32], least: usize) -> Result<ProcessedMedia, MediaError> {
        let config = self.extractor.config();
        let limit = self.spectrograms_max * TIMES * config.hop_length;
        let len = samples.len().max(least);
        if len > limit {
            let seconds = |samples: usize| (samples as u64).div_ceil(u64::from(config.rate));
            return Err(MediaError::TooLarge {
                modality: Modality::Audio,
                size: seconds(len),
                unit: "seconds",
                limit: seconds(limit),
            });
        }
        let times = len / config.hop_length;
        // HF mirrors half of a transform at both ends, and a shorter sound has no such part.
        if times == 0 || len <= config.n_fft / 2 {
            return Err(invalid("it is too short to have an embedding"));
        }
        let whole = self.extractor.spectrogram_of(samples, len);
        let starts = (0..times).step_by(TIMES);
        let part = |start: usize| part(config, &whole, times, start..(start + TIMES).min(times));
        Ok(media(starts.map(part).collect(), num_states(times)))
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

/// Returns the most spectrograms of a sound of `seconds`, or of `max_audio_len` in the settings of
/// the processor. HF truncates longer sounds.
fn spectrograms_max(model: &Path, config: &MelConfig, seconds: f64) -> Result<usize, ConfigError> {
    const FIELD: &str = "max_audio_len";
    let path = model.join(EXTRACTOR_FILES[1]);
    let whole = match model_files::exists(&path) {
        true => whisper::json(&path)?,
        false => Value::Null,
    };
    let value = whole.get(FIELD).filter(|value| !value.is_null());
    let most = f64::from(SECONDS_MAX);
    let seconds = value.map_or(Some(seconds), Value::as_f64);
    let seconds = seconds.filter(|seconds| (config.seconds as f64..=most).contains(seconds));
    let count = seconds.map(|seconds| seconds as usize / config.seconds);
    count.ok_or_else(|| ConfigError::Invalid {
        path,
        field: FIELD.to_owned(),
        value: value.unwrap_or(&Value::Null).to_string(),
        expected: format!("seconds from {} to {most}", config.seconds),
    })
}

/// Returns the number in a field of the extractor's settings.
fn extractor_field(model: &Path, field: &str) -> Result<Option<usize>, ConfigError> {
    for file in EXTRACTOR_FILES {
        let path = model.join(file);
        if !model_files::exists(&path) {
            continue;
        }
        let whole = whisper::json(&path)?;
        let nested = whole.get("feature_extractor").unwrap_or(&whole);
        if let Some(value) = nested.get(field).and_then(Value::as_u64) {
            return Ok(usize::try_from(value).ok());
        }
    }
    Ok(None)
}

/// Returns the tensor of some windows of a spectrogram with `times` windows.
fn part(config: &MelConfig, whole: &[f32], times: usize, windows: Range<usize>) -> MediaTensor {
    let bins = whole.chunks_exact(times).flat_map(|bin| &bin[windows.clone()]);
    MediaTensor {
        shape: vec![config.num_bins, windows.len()],
        dtype: MediaDtype::F32,
        data: bins.flat_map(|value| value.to_le_bytes()).collect(),
    }
}

/// Returns the tensor that says how many frames hold sound. It has no elements.
fn frames(num_frames: usize) -> MediaTensor {
    MediaTensor { shape: vec![num_frames], dtype: MediaDtype::F32, data: Vec::new().into() }
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
        match self.sounds.family {
            AudioFamily::Qwen3Asr | AudioFamily::Qwen3Omni => {
                num_states(self.spectrograms_max * TIMES)
            }
            _ => self.spectrograms_max * (self.sounds.num_frames / self.sounds.merge),
        }
    }

    fn placeholder(&self, _modality: Modality) -> &str {
        match self.sounds.family {
            AudioFamily::Qwen2Audio | AudioFamily::Qwen2_5Omni => {
                "<|audio_bos|><|AUDIO|><|audio_eos|>"
            }
            AudioFamily::Voxtral => "[BEGIN_AUDIO][AUDIO]",
            AudioFamily::AudioFlamingo3 | AudioFamily::MusicFlamingo => "<sound>",
            AudioFamily::GlmAsr => "<|begin_of_audio|><|pad|><|end_of_audio|>",
            AudioFamily::Qwen3Asr | AudioFamily::Qwen3Omni => {
                "<|audio_start|><|audio_pad|><|audio_end|>"
            }
        }
    }

    fn numbered_placeholder(&self, modality: Modality, index: usize) -> String {
        let placeholder = self.placeholder(modality);
        match self.sounds.family {
            AudioFamily::Qwen2Audio | AudioFamily::Qwen2_5Omni => {
                format!("Audio {}: {placeholder}", index + 1)
            }
            _ => placeholder.to_owned(),
        }
    }

    fn placeholder_tokens(&self, _modality: Modality) -> &[TokenId] {
        &self.placeholder_token
    }

    fn tokens(&self, media: &ProcessedMedia) -> Vec<TokenId> {
        let embeds = std::iter::repeat_n(self.sounds.placeholder, media.num_embeds);
        match self.sounds.marks {
            Some([before, behind]) => {
                std::iter::once(before).chain(embeds).chain([behind]).collect()
            }
            None => embeds.collect(),
        }
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
            AudioFamily::Qwen2Audio
            | AudioFamily::AudioFlamingo3
            | AudioFamily::MusicFlamingo
            | AudioFamily::Qwen2_5Omni => None,
            // It takes more, and vLLM gives it no more at once.
            AudioFamily::Qwen3Asr => u32::try_from(self.extractor.config().seconds).ok(),
            AudioFamily::Qwen3Omni => u32::try_from(QWEN3_OMNI_SECONDS).ok(),
            AudioFamily::Voxtral | AudioFamily::GlmAsr => {
                u32::try_from(self.spectrograms_max * self.extractor.config().seconds).ok()
            }
        }
    }

    fn audio(&self, samples: &[f32], _: &Map<String, Value>) -> Result<ProcessedMedia, MediaError> {
        match self.sounds.family {
            AudioFamily::Qwen2Audio => self.one(samples),
            AudioFamily::Voxtral => self.all(samples),
            AudioFamily::AudioFlamingo3 | AudioFamily::MusicFlamingo | AudioFamily::GlmAsr => {
                self.parts(samples)
            }
            AudioFamily::Qwen2_5Omni => self.in_windows(samples),
            AudioFamily::Qwen3Asr => self.ended(samples, QWEN3_ASR_SAMPLES_MIN),
            AudioFamily::Qwen3Omni => self.ended(samples, 0),
        }
    }
}

#[cfg(test)]
#[path = "hearing_tests.rs"]
mod tests;
