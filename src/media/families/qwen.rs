//! Images and videos of Qwen2-VL, Qwen2.5-VL, Qwen2.5-Omni, Qwen3-VL, Qwen3-Omni, Qwen3.5 and
//! EXAONE 4.5, and images of dots.ocr: any size, in whole squares of patches (HF
//! `Qwen2VLImageProcessor`, `Qwen2VLProcessor`, `Qwen3VLProcessor`).

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

use super::llava::invalid;
use super::qwen_video::{VideoRules, is_timed};
use super::resize::{Filter, Pixels};
use super::{Encode, fields, item, sizes};
use crate::media::{frames::Video, processor::FamilyProcessor};
use crate::model::ConfigError;
use crate::model::config::Fields;
use crate::model::vision::{MediaTokens, ProcessorConfig, VisionFamily};

/// The texts that stand for an image and for a video.
const QWEN: [&str; 2] =
    ["<|vision_start|><|image_pad|><|vision_end|>", "<|vision_start|><|video_pad|><|vision_end|>"];
/// dots.ocr takes no videos.
const DOTS: [&str; 2] = ["<|img|><|imgpad|><|endofimg|>", ""];
const EXAONE: [&str; 2] = ["<vision><|image_pad|></vision>", "<vision><|video_pad|></vision>"];

/// The processor of one model.
pub(super) struct Qwen {
    image_token: [TokenId; 1],
    texts: [&'static str; 2],
    takes_videos: bool,
    /// The placeholder of a video. If frames are timed, it has the marks around it.
    video_tokens: Vec<TokenId>,
    /// The tokens before and after a timed frame, and in the places of its embeddings.
    marks: [TokenId; 2],
    video_token: TokenId,
    /// Pixels on a side of a square, which is one embedding.
    side: usize,
    /// The least and the most pixels of an image.
    limits: [usize; 2],
    filter: Filter,
    resizes: bool,
    videos: VideoRules,
    encode: Arc<Encode>,
}

impl Qwen {
    /// Reads the processor of a model whose `config.json` has the fields `outer`.
    pub(super) fn read(
        family: VisionFamily,
        outer: &Fields,
        processor: &ProcessorConfig,
        encode: Arc<Encode>,
    ) -> Result<Self, ConfigError> {
        let fields = &processor.image;
        let default = match family {
            VisionFamily::Qwen3Vl | VisionFamily::Qwen3_5 => 16,
            _ => 14,
        };
        let patch = fields.size("patch_size")?.unwrap_or(default);
        let merge = fields.size("merge_size")?.unwrap_or(2);
        let token = |field: &str, default: u32| match outer.count(field)? {
            Some(token) => u32::try_from(token).map_err(|_| outer.invalid(field, "a token id")),
            None => Ok(default),
        };
        let scale = crate::model::vision::qwen_scale(family);
        if processor.video_scale(scale)? != processor.scale(scale)? {
            return Err(processor.video.invalid("image_mean", "the numbers of images"));
        }
        let texts = match family {
            VisionFamily::Exaone4_5 => EXAONE,
            VisionFamily::DotsOcr => DOTS,
            _ => QWEN,
        };
        let defaults = MediaTokens::of(family);
        let image_token = token("image_token_id", defaults.places[0])?;
        let video_token = token("video_token_id", defaults.places[1])?;
        let marks = [
            token("vision_start_token_id", defaults.marks[0])?,
            token("vision_end_token_id", defaults.marks[1])?,
        ];
        Ok(Self {
            image_token: [image_token],
            texts,
            takes_videos: family != VisionFamily::DotsOcr,
            video_tokens: match is_timed(family) {
                true => vec![marks[0], video_token, marks[1]],
                false => vec![video_token],
            },
            marks,
            video_token,
            side: patch * merge,
            limits: limits(fields, [56 * 56, 28 * 28 * 1_280])?,
            filter: fields::filter(fields, Filter::Bicubic)?,
            resizes: fields.flag_or("do_resize", true)?,
            videos: VideoRules::read(family, outer, &processor.video, [patch, merge])?,
            encode,
        })
    }
}

/// Returns limits of pixels with the client's settings. They may not exceed the model's.
pub(super) fn limits_with(
    limits: [usize; 2],
    kwargs: &Map<String, Value>,
) -> Result<[usize; 2], MediaError> {
    let size = kwargs.get("size").and_then(Value::as_object);
    let most = limits[1];
    let pixels = |old: &str, new: &str, default: usize| {
        let value = kwargs.get(old).filter(|value| !value.is_null());
        let Some(value) = value.or_else(|| size?.get(new)) else { return Ok(default) };
        let count = value.as_u64().and_then(|count| usize::try_from(count).ok());
        let count = count.filter(|count| (1..=most).contains(count));
        count.ok_or_else(|| {
            let field = if kwargs.contains_key(old) { old } else { new };
            MediaError::Kwargs(format!("`{field}` is {value}; expected 1 to {most} pixels"))
        })
    };
    let most = pixels("max_pixels", "longest_edge", limits[1])?;
    let least = pixels("min_pixels", "shortest_edge", limits[0])?;
    Ok([least, most])
}

/// Reads the least and the most pixels: `size`, or the older fields `min_pixels` and `max_pixels`.
pub(super) fn limits(fields: &Fields, defaults: [usize; 2]) -> Result<[usize; 2], ConfigError> {
    let size = fields.nested("size")?.unwrap_or_else(|| Fields::empty_in(fields));
    let pixels = |old: &str, new: &str, default: usize| {
        Ok::<_, ConfigError>(fields.pixels(old)?.or(size.pixels(new)?).unwrap_or(default))
    };
    Ok([
        pixels("min_pixels", "shortest_edge", defaults[0])?,
        pixels("max_pixels", "longest_edge", defaults[1])?,
    ])
}

impl FamilyProcessor for Qwen {
    fn modalities(&self) -> &[Modality] {
        match self.takes_videos {
            true => &[Modality::Image, Modality::Video],
            false => &[Modality::Image],
        }
    }

    fn max_item_embeds(&self) -> usize {
        // An image of fewer pixels than the least grows to whole squares.
        let most = self.limits[1].max(4 * self.limits[0]);
        let of_image = (most / (self.side * self.side)).max(sizes::RATIO_MAX);
        of_image.max(self.videos.most_embeds(self.side))
    }

    fn placeholder(&self, modality: Modality) -> &str {
        match modality {
            Modality::Video => self.texts[1],
            _ => self.texts[0],
        }
    }

    fn placeholder_tokens(&self, modality: Modality) -> &[TokenId] {
        match modality {
            Modality::Image => &self.image_token,
            Modality::Video => &self.video_tokens,
            Modality::Audio | Modality::Text => &[],
        }
    }

    fn tokens(&self, media: &ProcessedMedia) -> Vec<TokenId> {
        if media.modality != Modality::Video {
            return vec![self.image_token[0]; media.num_embeds];
        }
        let times = media.tensors.get(1).map(|times| String::from_utf8_lossy(&times.data));
        let times = times.as_deref().unwrap_or_default();
        if times.is_empty() {
            return vec![self.video_token; media.num_embeds];
        }
        let [frames, ..] = media.grid.unwrap_or_default();
        let per_frame = media.num_embeds / (frames as usize).max(1);
        let [start, end] = self.marks;
        let of_frame = |time: &str| {
            let mut tokens = (self.encode)(time);
            tokens.push(start);
            tokens.extend(std::iter::repeat_n(self.video_token, per_frame));
            tokens.push(end);
            tokens
        };
        times.lines().flat_map(of_frame).collect()
    }

    fn is_placeholder(&self, token: TokenId) -> bool {
        token == self.image_token[0] || token == self.video_token
    }

    fn image(
        &self,
        image: &RgbImage,
        kwargs: &Map<String, Value>,
    ) -> Result<ProcessedMedia, MediaError> {
        let limits = limits_with(self.limits, kwargs)?;
        let pixels = Pixels::of(image);
        let before = [pixels.height, pixels.width];
        let size = match self.resizes {
            false => before,
            true => sizes::in_squares(before, self.side, limits).ok_or_else(|| {
                invalid(&format!("one side is more than {} times the other", sizes::RATIO_MAX))
            })?,
        };
        let [rows, columns] = self.squares(size).map_err(|reason| invalid(&reason))?;
        let pixels = pixels.resized(self.filter, size);
        let grid = [1, rows as u32, columns as u32];
        Ok(item(vec![pixels], rows * columns, Some(grid)))
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
        let VideoRules { filter, merge, .. } = self.videos;
        let limits = limits_with(self.videos.limits, kwargs)?;
        let size = self.videos.size(video, self.side, limits)?;
        let refused = |reason| MediaError::Invalid { modality: Modality::Video, reason };
        let [rows, columns] = self.squares(size).map_err(refused)?;
        let frames = video.frames.iter().map(|frame| Pixels::of(frame).resized(filter, size));
        let count = video.frames.len().div_ceil(merge);
        let grid = [count, rows, columns].map(|count| count as u32);
        let media = item(frames.collect(), count * rows * columns, Some(grid));
        let of_frames = |shape: Vec<usize>, data: Vec<u8>| MediaTensor {
            shape,
            dtype: MediaDtype::U8,
            data: data.into(),
        };
        let times = self.videos.times(video).map(|times| {
            let text = times.join("\n").into_bytes();
            of_frames(vec![text.len()], text)
        });
        let positions =
            self.videos.positions(video, kwargs)?.map(|positions| of_frames(positions, Vec::new()));
        let tensors = media.tensors.into_iter().chain(times).chain(positions).collect();
        Ok(ProcessedMedia { modality: Modality::Video, tensors, ..media })
    }
}

impl Qwen {
    /// Returns the rows and columns of squares of an image of `size`.
    fn squares(&self, size: [usize; 2]) -> Result<[usize; 2], String> {
        let side = self.side;
        match size.iter().any(|length| *length == 0 || length % side != 0) {
            true => Err(format!("its sides are no multiples of {side} pixels")),
            false => Ok(size.map(|length| length / side)),
        }
    }
}
