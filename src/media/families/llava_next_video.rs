//! Images of LLaVA-NeXT-Video: those of LLaVA-NeXT. Each frame of a video is one tile, cut from the
//! middle (HF `LlavaNextVideoVideoProcessor`, `LlavaNextVideoProcessor`).

use std::sync::Arc;

use image::RgbImage;
use playhouse_actors::{
    logic::request::{
        ids::TokenId,
        media::{MediaDtype, MediaTensor, Modality, ProcessedMedia},
    },
    ports::MediaError,
};
use serde_json::{Map, Value, json};

use super::adjustable::reason;
use super::fields::{self, Size};
use super::internvl_video::VideoRules;
use super::llava_next::LlavaNext;
use super::resize::Pixels;
use super::sampling::Steps;
use super::{item, sizes};
use crate::media::{frames::Video, processor::FamilyProcessor};
use crate::model::ConfigError;
use crate::model::config::Fields;
use crate::model::vision::{
    PooledFrames, ProcessorConfig, TileImages, VisionFamily, video_placeholder,
};

/// The processor of one model.
#[derive(Debug)]
pub(super) struct LlavaNextVideo {
    next: LlavaNext,
    video_token: [TokenId; 1],
    /// The rules of videos and the size of a frame before it is cut, or why videos are not served.
    videos: Result<(VideoRules, Size), String>,
}

impl LlavaNextVideo {
    /// Reads the processor of a model whose `config.json` has the fields `outer`.
    pub(super) fn read(
        family: VisionFamily,
        outer: &Fields,
        processor: &ProcessorConfig,
    ) -> Result<Self, ConfigError> {
        let images = TileImages::read(family, outer)?;
        let size = frame_size(&processor.video, images.image_size)
            .map_err(|error| format!("the model's processor of videos: {}", reason(&error)));
        Ok(Self {
            next: LlavaNext::read(family, outer, processor)?,
            video_token: [video_placeholder(outer, family)?],
            videos: size.and_then(|size| Ok((rules(processor, images)?, size))),
        })
    }

    /// Returns the rules of videos, and the size of a frame before it is cut.
    fn videos(&self) -> Result<&(VideoRules, Size), MediaError> {
        self.videos.as_ref().map_err(|reason| invalid(reason))
    }
}

/// Returns the size of a frame, from whose middle a tile of `side` pixels is cut.
fn frame_size(fields: &Fields, side: usize) -> Result<Size, ConfigError> {
    const CROP: &str = "crop_size";
    const CROPS: &str = "do_center_crop";
    let tile = Size::Exact { height: side, width: side };
    let size = fields::size(fields, "size", false, Size::Shortest(224))?;
    let crop = fields::size(fields, CROP, true, Size::Exact { height: 224, width: 224 })?;
    if crop != tile {
        return Err(fields.invalid(CROP, &format!("{side} x {side}, the tower's image_size")));
    }
    match fields.flag_or(CROPS, true)? || size == tile {
        true => Ok(size),
        false => Err(fields.invalid(CROPS, "true")),
    }
}

/// Returns the rules of videos. The size of frames is another matter.
fn rules(processor: &ProcessorConfig, images: TileImages) -> Result<VideoRules, String> {
    let side = images.image_size;
    let tile = json!({ "height": side, "width": side });
    let video = processor.video.with("size", tile).with("do_center_crop", false.into());
    let processor = ProcessorConfig { video, ..processor.clone() };
    VideoRules::read(&processor, images, Steps::FromFirst)
}

/// Returns the error of a video that the processor does not accept.
fn invalid(reason: &str) -> MediaError {
    MediaError::Invalid { modality: Modality::Video, reason: reason.to_owned() }
}

impl FamilyProcessor for LlavaNextVideo {
    fn modalities(&self) -> &[Modality] {
        &[Modality::Image, Modality::Video]
    }

    fn max_item_embeds(&self) -> usize {
        self.next.max_item_embeds()
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

    /// Each frame is encoded by itself.
    fn parts(&self, media: &Arc<ProcessedMedia>) -> Vec<Arc<ProcessedMedia>> {
        if media.modality != Modality::Video {
            return vec![Arc::clone(media)];
        }
        let frames = PooledFrames { has_end: false };
        let part = |frame: &MediaTensor| {
            let (shape, data) = (frames.shape(), Vec::new().into());
            let marker = MediaTensor { shape, dtype: MediaDtype::U8, data };
            Arc::new(ProcessedMedia {
                tensors: vec![frame.clone(), marker],
                num_embeds: frames.num_embeds(self.next.features(), 1),
                ..ProcessedMedia::clone(media)
            })
        };
        media.tensors.iter().map(part).collect()
    }

    fn image(
        &self,
        image: &RgbImage,
        kwargs: &Map<String, Value>,
    ) -> Result<ProcessedMedia, MediaError> {
        self.next.image(image, kwargs)
    }

    fn chosen_frames(
        &self,
        total: usize,
        fps: Option<f64>,
        kwargs: &Map<String, Value>,
    ) -> Result<Vec<usize>, MediaError> {
        self.videos()?.0.chosen(total, fps, kwargs)
    }

    fn video(
        &self,
        video: &Video,
        _kwargs: &Map<String, Value>,
    ) -> Result<ProcessedMedia, MediaError> {
        let (rules, size) = self.videos()?;
        let side = self.next.side();
        let mut tensors = Vec::with_capacity(video.frames.len());
        for frame in &video.frames {
            let pixels = Pixels::of(frame);
            let target = sizes::target([pixels.height, pixels.width], *size);
            let target = target.ok_or_else(|| invalid("one side is much longer than the other"))?;
            let pixels = pixels.resized(rules.filter, target).center([side; 2]);
            tensors.extend(item(vec![pixels], 0, None).tensors);
        }
        let frames = PooledFrames { has_end: false };
        let num_embeds = frames.num_embeds(self.next.features(), tensors.len());
        Ok(ProcessedMedia { modality: Modality::Video, tensors, num_embeds, grid: None })
    }
}
