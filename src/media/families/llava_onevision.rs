//! Images of LLaVA-OneVision: as those of LLaVA-NeXT, with a limit of features. Each frame of a
//! video is one tile (HF `LlavaOnevisionImageProcessor`, `LlavaOnevisionVideoProcessor`,
//! `LlavaOnevisionProcessor`). Several images of a prompt are all in tiles, as in vLLM.

use std::sync::Arc;

use image::RgbImage;
use playhouse_actors::{
    logic::request::{
        ids::TokenId,
        media::{MediaDtype, MediaTensor, Modality, ProcessedMedia},
    },
    ports::MediaError,
};
use serde_json::{Map, Value};

use super::internvl_video::VideoRules;
use super::item;
use super::llava_next::LlavaNext;
use super::resize::Pixels;
use super::sampling::Steps;
use crate::media::{frames::Video, processor::FamilyProcessor};
use crate::model::ConfigError;
use crate::model::config::Fields;
use crate::model::vision::{
    PooledFrames, ProcessorConfig, TileImages, VisionFamily, most_tiles, video_placeholder,
};

/// The processor of one model.
#[derive(Debug)]
pub(super) struct LlavaOnevision {
    next: LlavaNext,
    video_token: [TokenId; 1],
    /// The tiles whose features an image may have.
    most_tiles: usize,
    /// The rules of videos, or why they are not served.
    videos: Result<VideoRules, String>,
}

impl LlavaOnevision {
    /// Reads the processor of a model whose `config.json` has the fields `outer`.
    pub(super) fn read(
        family: VisionFamily,
        outer: &Fields,
        processor: &ProcessorConfig,
    ) -> Result<Self, ConfigError> {
        let images = TileImages::read(family, outer)?;
        Ok(Self {
            next: LlavaNext::read(family, outer, processor)?,
            video_token: [video_placeholder(outer, family)?],
            most_tiles: most_tiles(outer)?,
            videos: VideoRules::read(processor, images, Steps::FromFirst),
        })
    }

    /// Returns the rules of videos.
    fn videos(&self) -> Result<&VideoRules, MediaError> {
        self.videos.as_ref().map_err(|reason| MediaError::Invalid {
            modality: Modality::Video,
            reason: reason.clone(),
        })
    }
}

impl FamilyProcessor for LlavaOnevision {
    fn modalities(&self) -> &[Modality] {
        &[Modality::Image, Modality::Video]
    }

    fn max_item_embeds(&self) -> usize {
        let side = self.next.features();
        // Features are resized where they are 1.21 times as many as allowed.
        let allowed = self.most_tiles * side * side * 121 / 100;
        let most = |[rows, columns]: [usize; 2]| (rows * columns).min(allowed) + rows;
        side * side + self.next.grids().map(most).max().unwrap_or_default()
    }

    fn placeholder(&self, modality: Modality) -> &str {
        match modality {
            Modality::Video => "<video>",
            _ => "<image>",
        }
    }

    fn placeholder_tokens(&self, modality: Modality) -> &[TokenId] {
        match modality {
            Modality::Image => self.next.placeholder_tokens(modality),
            Modality::Video => &self.video_token,
            Modality::Audio | Modality::Text => &[],
        }
    }

    fn tokens(&self, media: &ProcessedMedia) -> Vec<TokenId> {
        match media.modality {
            Modality::Video => vec![self.video_token[0]; media.num_embeds],
            _ => self.next.tokens(media),
        }
    }

    fn is_placeholder(&self, token: TokenId) -> bool {
        token == self.video_token[0] || self.next.is_placeholder(token)
    }

    /// Each frame is encoded by itself. The learned vector follows the last one.
    fn parts(&self, media: &Arc<ProcessedMedia>) -> Vec<Arc<ProcessedMedia>> {
        if media.modality != Modality::Video {
            return vec![Arc::clone(media)];
        }
        let part = |(at, frame): (usize, &MediaTensor)| {
            let frames = PooledFrames { has_end: at + 1 == media.tensors.len() };
            let (shape, data) = (frames.shape(), Vec::new().into());
            let marker = MediaTensor { shape, dtype: MediaDtype::U8, data };
            Arc::new(ProcessedMedia {
                tensors: vec![frame.clone(), marker],
                num_embeds: frames.num_embeds(self.next.features(), 1),
                ..ProcessedMedia::clone(media)
            })
        };
        media.tensors.iter().enumerate().map(part).collect()
    }

    fn image(
        &self,
        image: &RgbImage,
        _kwargs: &Map<String, Value>,
    ) -> Result<ProcessedMedia, MediaError> {
        let (all, tiles) = self.next.cut(image);
        let num_embeds = tiles.num_capped(self.next.features(), self.most_tiles);
        Ok(LlavaNext::item(all, tiles, num_embeds))
    }

    fn chosen_frames(
        &self,
        total: usize,
        fps: Option<f64>,
        kwargs: &Map<String, Value>,
    ) -> Result<Vec<usize>, MediaError> {
        self.videos()?.chosen(total, fps, kwargs)
    }

    fn video(
        &self,
        video: &Video,
        _kwargs: &Map<String, Value>,
    ) -> Result<ProcessedMedia, MediaError> {
        let (filter, side) = (self.videos()?.filter, self.next.side());
        let frames = video.frames.iter().flat_map(|frame| {
            let pixels = Pixels::of(frame).resized(filter, [side; 2]);
            item(vec![pixels], 0, None).tensors
        });
        let tensors: Vec<MediaTensor> = frames.collect();
        let frames = PooledFrames { has_end: true };
        let num_embeds = frames.num_embeds(self.next.features(), tensors.len());
        Ok(ProcessedMedia { modality: Modality::Video, tensors, num_embeds, grid: None })
    }
}
