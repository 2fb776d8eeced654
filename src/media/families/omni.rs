//! Images, videos and sounds of Qwen2.5-Omni and Qwen3-Omni (HF `Qwen2_5OmniProcessor` and
//! `Qwen3OmniMoeProcessor`). A video's own sound is not heard.

use image::RgbImage;
use playhouse_actors::{
    logic::request::{
        ids::TokenId,
        media::{Modality, ProcessedMedia},
    },
    ports::MediaError,
};
use serde_json::{Map, Value};

use super::adjustable::Adjustable;
use super::hearing::Hearing;
use crate::media::{frames::Video, processor::FamilyProcessor};
use crate::model::audio::AudioFamily;

/// The fields that ask for the sound of a video, of transformers and vLLM.
const SOUND_OF_VIDEO: [&str; 2] = ["use_audio_in_video", "load_audio_from_video"];

/// The processor of one model.
pub(super) struct Omni {
    family: AudioFamily,
    images: Adjustable,
    sounds: Hearing,
}

impl Omni {
    /// Returns the processor of a model with these parts.
    pub(super) fn new(family: AudioFamily, images: Adjustable, sounds: Hearing) -> Self {
        Self { family, images, sounds }
    }

    /// Returns the part that processes items of this kind.
    fn part(&self, modality: Modality) -> &dyn FamilyProcessor {
        match modality {
            Modality::Audio => &self.sounds,
            Modality::Image | Modality::Video | Modality::Text => &self.images,
        }
    }
}

impl FamilyProcessor for Omni {
    fn modalities(&self) -> &[Modality] {
        &[Modality::Image, Modality::Video, Modality::Audio]
    }

    fn max_item_embeds(&self) -> usize {
        self.images.max_item_embeds().max(self.sounds.max_item_embeds())
    }

    fn placeholder(&self, modality: Modality) -> &str {
        match modality {
            Modality::Audio => self.sounds.placeholder(modality),
            _ if self.family == AudioFamily::Qwen3Omni => self.images.placeholder(modality),
            Modality::Video => "<|vision_bos|><|VIDEO|><|vision_eos|>",
            Modality::Image | Modality::Text => "<|vision_bos|><|IMAGE|><|vision_eos|>",
        }
    }

    fn numbered_placeholder(&self, modality: Modality, index: usize) -> String {
        match modality {
            Modality::Audio => self.sounds.numbered_placeholder(modality, index),
            _ => self.placeholder(modality).to_owned(),
        }
    }

    fn placeholder_tokens(&self, modality: Modality) -> &[TokenId] {
        self.part(modality).placeholder_tokens(modality)
    }

    fn tokens(&self, media: &ProcessedMedia) -> Vec<TokenId> {
        self.part(media.modality).tokens(media)
    }

    fn is_placeholder(&self, token: TokenId) -> bool {
        self.images.is_placeholder(token) || self.sounds.is_placeholder(token)
    }

    fn image(
        &self,
        image: &RgbImage,
        kwargs: &Map<String, Value>,
    ) -> Result<ProcessedMedia, MediaError> {
        self.images.image(image, kwargs)
    }

    fn chosen_frames(
        &self,
        total: usize,
        fps: Option<f64>,
        kwargs: &Map<String, Value>,
    ) -> Result<Vec<usize>, MediaError> {
        self.images.chosen_frames(total, fps, kwargs)
    }

    fn video(
        &self,
        video: &Video,
        kwargs: &Map<String, Value>,
    ) -> Result<ProcessedMedia, MediaError> {
        let asked = |field: &&&str| kwargs.get(**field).is_some_and(|value| *value == true);
        if let Some(field) = SOUND_OF_VIDEO.iter().find(asked) {
            return Err(MediaError::Kwargs(format!(
                "`{field}` is true; expected false: the sound of a video is not heard, send it beside \
                 the video"
            )));
        }
        self.images.video(video, kwargs)
    }

    fn sampling_rate(&self) -> u32 {
        self.sounds.sampling_rate()
    }

    fn sound_seconds(&self) -> Option<u32> {
        self.sounds.sound_seconds()
    }

    fn audio(
        &self,
        samples: &[f32],
        kwargs: &Map<String, Value>,
    ) -> Result<ProcessedMedia, MediaError> {
        self.sounds.audio(samples, kwargs)
    }
}

#[cfg(test)]
#[path = "omni_tests.rs"]
mod tests;
