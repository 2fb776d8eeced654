//! Images and videos of GLM-4.1V and its successors, and of GLM-OCR: any size, in whole squares of
//! patches (HF `Glm4vImageProcessor`, `Glm4vProcessor`).

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

use super::glm_video::{self, VideoRules};
use super::llava::invalid;
use super::qwen::{limits, limits_with};
use super::resize::{Filter, Pixels};
use super::{Encode, fields, item, sizes};
use crate::media::{frames::Video, processor::FamilyProcessor};
use crate::model::ConfigError;
use crate::model::config::Fields;
use crate::model::vision::{ProcessorConfig, VisionFamily};

/// The processor of one model.
pub(super) struct Glm {
    image_token: [TokenId; 1],
    /// The placeholder of a video. The frames that replace it have the placeholders of images.
    video_token: [TokenId; 1],
    /// The tokens before and after a frame of a video.
    marks: [TokenId; 2],
    /// Pixels on a side of a square, which is one embedding.
    side: usize,
    /// The frames that one patch spans. An image counts as so many.
    frames: usize,
    /// The least and the most pixels of an image, with all of its frames.
    limits: [usize; 2],
    filter: Filter,
    resizes: bool,
    videos: VideoRules,
    encode: Arc<Encode>,
}

impl Glm {
    /// Reads the processor of a model whose `config.json` has the fields `outer`.
    pub(super) fn read(
        family: VisionFamily,
        outer: &Fields,
        processor: &ProcessorConfig,
        encode: Arc<Encode>,
    ) -> Result<Self, ConfigError> {
        let fields = &processor.image;
        let size = |field: &str, default: usize| {
            Ok::<usize, ConfigError>(fields.size(field)?.unwrap_or(default))
        };
        let token = |field: &str, default: usize| {
            let token = outer.count(field)?.unwrap_or(default);
            u32::try_from(token).map_err(|_| outer.invalid(field, "a token id"))
        };
        let scale = crate::model::vision::qwen_scale(family);
        if processor.video_scale(scale)? != processor.scale(scale)? {
            return Err(processor.video.invalid("image_mean", "the numbers of images"));
        }
        let (patch, merge) = (size("patch_size", 14)?, size("merge_size", 2)?);
        let frames = size("temporal_patch_size", 2)?;
        let [image, video, start, end] = match family {
            VisionFamily::GlmOcr => [59_280, 59_281, 59_256, 59_257],
            _ => [151_343, 151_344, 151_339, 151_340],
        };
        Ok(Self {
            image_token: [token("image_token_id", image)?],
            video_token: [token("video_token_id", video)?],
            marks: [token("image_start_token_id", start)?, token("image_end_token_id", end)?],
            side: patch * merge,
            frames,
            limits: limits(fields, [112 * 112, 28 * 28 * 15_000])?,
            filter: fields::filter(fields, Filter::Bicubic)?,
            resizes: fields.flag_or("do_resize", true)?,
            videos: VideoRules::read(processor, [patch, merge, frames])?,
            encode,
        })
    }

    /// Returns the rows and columns of squares of pixels of `size`.
    fn squares(&self, size: [usize; 2]) -> Result<[usize; 2], String> {
        let side = self.side;
        match size.iter().any(|length| *length == 0 || length % side != 0) {
            true => Err(format!("its sides are no multiples of {side} pixels")),
            false => Ok(size.map(|length| length / side)),
        }
    }
}

impl FamilyProcessor for Glm {
    fn modalities(&self) -> &[Modality] {
        &[Modality::Image, Modality::Video]
    }

    fn max_item_embeds(&self) -> usize {
        // An image of fewer pixels than the least grows to whole squares.
        let most = self.limits[1].max(4 * self.limits[0]) / self.frames;
        let of_image = (most / (self.side * self.side)).max(sizes::RATIO_MAX);
        of_image.max(self.videos.most_embeds(self.side))
    }

    fn placeholder(&self, modality: Modality) -> &str {
        match modality {
            Modality::Video => "<|begin_of_video|><|video|><|end_of_video|>",
            _ => "<|begin_of_image|><|image|><|end_of_image|>",
        }
    }

    fn placeholder_tokens(&self, modality: Modality) -> &[TokenId] {
        match modality {
            Modality::Image => &self.image_token,
            Modality::Video => &self.video_token,
            Modality::Audio | Modality::Text => &[],
        }
    }

    fn tokens(&self, media: &ProcessedMedia) -> Vec<TokenId> {
        let times = match media.modality {
            Modality::Video => media.tensors.get(1),
            _ => None,
        };
        let Some(times) = times else { return vec![self.image_token[0]; media.num_embeds] };
        let times = String::from_utf8_lossy(&times.data);
        let [frames, ..] = media.grid.unwrap_or_default();
        let per_frame = media.num_embeds / (frames as usize).max(1);
        let [start, end] = self.marks;
        let of_frame = |time: &str| {
            let mut tokens = vec![start];
            tokens.extend(std::iter::repeat_n(self.image_token[0], per_frame));
            tokens.push(end);
            tokens.extend((self.encode)(time));
            tokens
        };
        times.lines().flat_map(of_frame).collect()
    }

    fn is_placeholder(&self, token: TokenId) -> bool {
        token == self.image_token[0]
    }

    fn image(
        &self,
        image: &RgbImage,
        kwargs: &Map<String, Value>,
    ) -> Result<ProcessedMedia, MediaError> {
        let limits = limits_with(self.limits, kwargs)?;
        let pixels = Pixels::of(image);
        let before = [pixels.height, pixels.width];
        let frames = [self.frames, self.side];
        let size = match self.resizes {
            false => before,
            true => sizes::in_volumes(self.frames, before, frames, limits).ok_or_else(|| {
                invalid(&format!("one side is more than {} times the other", sizes::RATIO_MAX))
            })?,
        };
        let [rows, columns] = self.squares(size).map_err(|reason| invalid(&reason))?;
        let grid = [1, rows as u32, columns as u32];
        Ok(item(vec![pixels.resized(self.filter, size)], rows * columns, Some(grid)))
    }

    fn chosen_frames(
        &self,
        total: usize,
        fps: Option<f64>,
        kwargs: &Map<String, Value>,
    ) -> Result<Vec<usize>, MediaError> {
        self.videos.chosen(total, fps, kwargs)
    }

    fn video(
        &self,
        video: &Video,
        kwargs: &Map<String, Value>,
    ) -> Result<ProcessedMedia, MediaError> {
        let limits = limits_with(self.videos.limits, kwargs)?;
        let size = self.videos.size(video, self.side, limits)?;
        let squares = self.squares(size);
        let [rows, columns] = squares.map_err(|reason| glm_video::invalid(&reason))?;
        let count = self.videos.num_merged(video);
        let (num_embeds, limit) = (count * rows * columns, self.max_item_embeds());
        if num_embeds > limit {
            // Before the frames are resized: they may grow.
            let (size, limit) = (num_embeds as u64, limit as u64);
            let (modality, unit) = (Modality::Video, "embeddings");
            return Err(MediaError::TooLarge { modality, size, unit, limit });
        }
        let times = self.videos.times(video)?.join("\n").into_bytes();
        let filter = self.videos.filter;
        let frames = video.frames.iter().map(|frame| Pixels::of(frame).resized(filter, size));
        let grid = [count, rows, columns].map(|count| count as u32);
        let media = item(frames.collect(), num_embeds, Some(grid));
        let times =
            MediaTensor { shape: vec![times.len()], dtype: MediaDtype::U8, data: times.into() };
        let tensors = media.tensors.into_iter().chain([times]).collect();
        Ok(ProcessedMedia { modality: Modality::Video, tensors, ..media })
    }
}
