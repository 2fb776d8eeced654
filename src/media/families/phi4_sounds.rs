//! The feature extractor of Phi-4-multimodal: HF `Phi4MultimodalFeatureExtractor`.

use playhouse_actors::{
    logic::request::media::{MediaDtype, MediaTensor, Modality, ProcessedMedia},
    ports::MediaError,
};

use crate::media::audio::{KaldiConfig, KaldiExtractor};
use crate::model::ConfigError;
use crate::model::audio::Phi4Sounds;
use crate::model::config::Fields;
use crate::model::vision::ProcessorConfig;

/// The field of the bins of a spectrogram.
const BINS: &str = "feature_size";
/// The longest sound. The model was trained for 30 minutes.
const SECONDS_MAX: usize = 1_800;

/// The part of a processor for sounds.
pub(super) struct SoundProcessor {
    sounds: Phi4Sounds,
    extractor: KaldiExtractor,
}

impl SoundProcessor {
    /// Reads the extractor of a model whose `config.json` has the fields `outer`.
    pub(super) fn read(outer: &Fields, processor: &ProcessorConfig) -> Result<Self, ConfigError> {
        let sounds = Phi4Sounds::read(outer, 1)?;
        let fields = &extractor_fields(processor)?;
        let config = kaldi(fields)?;
        if config.num_bins != sounds.num_mel_bins {
            let expected = format!("{}, input_size of config.json", sounds.num_mel_bins);
            return Err(fields.invalid(BINS, &expected));
        }
        for (field, default, expected) in [
            ("audio_compression_rate", 8, sounds.reduction()),
            ("audio_downsample_rate", 1, 1),
            ("audio_feat_stride", 1, 1),
        ] {
            if fields.size(field)?.unwrap_or(default) != expected {
                return Err(fields.invalid(field, &expected.to_string()));
            }
        }
        Ok(Self { sounds, extractor: KaldiExtractor::new(config) })
    }

    /// Returns the token in the places of embeddings.
    pub(super) fn placeholder(&self) -> u32 {
        self.sounds.placeholder
    }

    /// Returns the embeddings of the longest sound.
    pub(super) fn most_embeds(&self) -> usize {
        let config = self.extractor.config();
        self.sounds.num_embeds(config.num_windows(SECONDS_MAX * config.rate as usize))
    }

    /// Returns the samples a second.
    pub(super) fn rate(&self) -> u32 {
        self.extractor.config().rate
    }

    /// Returns the spectrogram of a sound.
    pub(super) fn process(&self, samples: &[f32]) -> Result<ProcessedMedia, MediaError> {
        let (modality, config) = (Modality::Audio, self.extractor.config());
        if samples.len() > SECONDS_MAX * config.rate as usize {
            let size = samples.len().div_ceil(config.rate as usize) as u64;
            let limit = SECONDS_MAX as u64;
            return Err(MediaError::TooLarge { modality, size, unit: "seconds", limit });
        }
        let times = config.num_windows(samples.len());
        if times == 0 {
            let reason = "it is too short to have an embedding".to_owned();
            return Err(MediaError::Invalid { modality, reason });
        }
        let values = self.extractor.spectrogram(samples);
        let mel = MediaTensor {
            shape: vec![times, config.num_bins],
            dtype: MediaDtype::F32,
            data: values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        };
        let num_embeds = self.sounds.num_embeds(times);
        Ok(ProcessedMedia { modality, tensors: vec![mel], num_embeds, grid: None })
    }
}

/// Returns a sound that has images in its prompt: a second tensor tells the encoder.
pub(super) fn beside_images(sound: &ProcessedMedia) -> ProcessedMedia {
    let mut sound = sound.clone();
    let mark = MediaTensor { shape: vec![0], dtype: MediaDtype::U8, data: Vec::new().into() };
    sound.tensors.truncate(1);
    sound.tensors.push(mark);
    sound
}

/// Returns the fields of the extractor: an object of the whole processor, or those of a file that
/// has the fields of images, too.
fn extractor_fields(processor: &ProcessorConfig) -> Result<Fields, ConfigError> {
    for name in ["audio_processor", "feature_extractor"] {
        if let Some(fields) = processor.whole.nested(name)? {
            return Ok(fields);
        }
    }
    Ok(processor.image.clone())
}

/// Reads the form of spectrograms.
fn kaldi(fields: &Fields) -> Result<KaldiConfig, ConfigError> {
    const FFT: &str = "n_fft";
    const WINDOW: &str = "win_length";
    const RATE: &str = "sampling_rate";
    const PREEMPHASIS: &str = "preemphasis";
    const LEAST: &str = "mel_min_frequency";
    const MOST: &str = "mel_max_frequency";
    let size = |field: &str, default: usize| {
        Ok::<usize, ConfigError>(fields.size(field)?.unwrap_or(default))
    };
    let (n_fft, win_length) = (size(FFT, 512)?, size(WINDOW, 400)?);
    if n_fft > 1 << 14 {
        return Err(fields.invalid(FFT, "an integer from 1 to 16384"));
    }
    let num_bins = size(BINS, 80)?;
    if num_bins > n_fft {
        return Err(fields.invalid(BINS, &format!("at most {FFT}, {n_fft}")));
    }
    if !(2..=n_fft).contains(&win_length) {
        return Err(fields.invalid(WINDOW, &format!("from 2 to {FFT}, {n_fft}")));
    }
    let rate = u32::try_from(size(RATE, 16_000)?).ok().filter(|rate| *rate <= 384_000);
    let rate = rate.ok_or_else(|| fields.invalid(RATE, "an integer from 1 to 384000"))?;
    let least = fields.number(LEAST)?.unwrap_or(0.0);
    let most = fields.number(MOST)?.unwrap_or(7_690.0);
    if !(0.0..most).contains(&least) {
        return Err(fields.invalid(LEAST, &format!("from 0 to {MOST}, {most}")));
    }
    let preemphasis = fields.number(PREEMPHASIS)?.unwrap_or(0.97);
    Ok(KaldiConfig {
        num_bins,
        rate,
        n_fft,
        win_length,
        hop_length: size("hop_length", 160)?,
        preemphasis: preemphasis as f32,
        frequencies: [least, most],
    })
}
