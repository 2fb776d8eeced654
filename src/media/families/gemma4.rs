//! Images of Gemma 4: as large as the most embeddings allow, whatever their own size (HF
//! `Gemma4ImageProcessor`, `Gemma4Processor`). Each frame of a video is encoded by itself, with its
//! time before it (HF `Gemma4VideoProcessor`).

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

use super::adjustable::reason;
use super::resize::{Filter, Pixels};
use super::sampling::Sampling;
use super::{Encode, fields, item, llava};
use crate::media::{frames::Video, processor::FamilyProcessor};
use crate::model::ConfigError;
use crate::model::config::Fields;
use crate::model::vision::{Gemma4Images, ProcessorConfig, VisionFamily, gemma4_scale};

/// The numbers of embeddings that may be the most of an image.
const MOST_EMBEDS: [usize; 5] = [70, 140, 280, 560, 1_120];
/// The frames a second of a video of which they are not known, as in transformers.
const FPS_DEFAULT: f64 = 24.0;

/// The processor of one model.
pub(super) struct Gemma4 {
    image_token: [TokenId; 1],
    video_token: [TokenId; 1],
    /// The tokens before and after an image, or a frame.
    marks: [TokenId; 2],
    sizes: Sizes,
    filter: Filter,
    /// The rules of videos, or why they are not served.
    videos: Result<VideoRules, String>,
    encode: Arc<Encode>,
}

/// The sizes of images.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    /// Pixels on a side of a patch.
    patch: usize,
    /// Patches on a side of a square, which is one embedding.
    pooling: usize,
    /// The most embeddings.
    most: usize,
}

/// The rules of a model's videos.
#[derive(Debug)]
struct VideoRules {
    sizes: Sizes,
    filter: Filter,
    sampling: Sampling,
}

impl Sizes {
    /// Reads the sizes of a processor of the model's images or videos. `most` is the default of its
    /// class.
    fn read(fields: &Fields, images: Gemma4Images, most: usize) -> Result<Self, ConfigError> {
        const MOST: &str = "max_soft_tokens";
        let Gemma4Images { patch, pooling, num_positions, .. } = images;
        for (field, default, of_model) in
            [("patch_size", 16, patch), ("pooling_kernel_size", 3, pooling)]
        {
            if fields.size(field)?.unwrap_or(default) != of_model {
                return Err(fields.invalid(field, &format!("{of_model}, that of the tower")));
            }
        }
        fields::require_resize(fields)?;
        let most = fields.size(MOST)?.unwrap_or(most);
        if !MOST_EMBEDS.contains(&most) {
            return Err(fields.invalid(MOST, "70, 140, 280, 560 or 1120"));
        }
        if most * pooling > num_positions {
            let expected = format!("at most {}, as for positions", num_positions / pooling);
            return Err(fields.invalid(MOST, &expected));
        }
        Ok(Self { patch, pooling, most })
    }

    /// Returns the size of an image of `[height, width]` in whole squares: HF
    /// `get_aspect_ratio_preserving_size`. `None` if one side is too much longer than the other.
    fn target(self, size: [usize; 2]) -> Option<[usize; 2]> {
        let side = self.side();
        let most = self.most * side * side;
        let factor = (most as f64 / (size[0] * size[1]) as f64).sqrt();
        let whole = |length: usize| (factor * length as f64 / side as f64).floor() as usize;
        let [height, width] = size;
        // Python's `width / height`, rounded down.
        let ratio = |long: usize, short: usize| (long as f64 / short as f64).floor() as usize;
        let squares = match size.map(whole) {
            [0, 0] => return None,
            [0, _] => [1, ratio(width, height).min(self.most)],
            [_, 0] => [ratio(height, width).min(self.most), 1],
            squares => squares,
        };
        (squares[0] * squares[1] <= self.most).then_some(squares.map(|count| count * side))
    }

    /// Returns the pixels on a side of a square.
    fn side(self) -> usize {
        self.patch * self.pooling
    }

    /// Returns the embeddings of an image of `[height, width]` pixels in whole squares.
    fn num_embeds(self, [height, width]: [usize; 2]) -> usize {
        height / self.side() * (width / self.side())
    }
}

impl VideoRules {
    fn read(processor: &ProcessorConfig, images: Gemma4Images) -> Result<Self, ConfigError> {
        let fields = &processor.video;
        if gemma4_scale(fields, true)? != gemma4_scale(&processor.image, false)? {
            return Err(fields.invalid("image_mean", "the numbers of images"));
        }
        Ok(Self {
            sizes: Sizes::read(fields, images, 70)?,
            filter: fields::filter(fields, Filter::Bicubic)?,
            sampling: Sampling::up_to(fields, 32)?,
        })
    }
}

impl Gemma4 {
    /// Reads the processor of a model whose `config.json` has the fields `outer`.
    pub(super) fn read(
        family: VisionFamily,
        outer: &Fields,
        processor: &ProcessorConfig,
        encode: Arc<Encode>,
    ) -> Result<Self, ConfigError> {
        let images = Gemma4Images::read(family, outer)?;
        let [image_token, video_token] = images.placeholders;
        let videos = match outer.text("model_type")? {
            // Its frames have no times, and are chosen in another way.
            Some("embedding_gemma2") => {
                Err("videos of EmbeddingGemma 2 are not supported".to_owned())
            }
            _ => VideoRules::read(processor, images)
                .map_err(|error| format!("the model's processor of videos: {}", reason(&error))),
        };
        Ok(Self {
            image_token: [image_token],
            video_token: [video_token],
            marks: images.marks,
            sizes: Sizes::read(&processor.image, images, 280)?,
            filter: fields::filter(&processor.image, Filter::Bicubic)?,
            videos,
            encode,
        })
    }

    /// Returns the rules of videos.
    fn videos(&self) -> Result<&VideoRules, MediaError> {
        self.videos.as_ref().map_err(|reason| of_video(reason))
    }

    /// Appends the tokens of an image or a frame.
    fn push(&self, placeholder: TokenId, num_embeds: usize, tokens: &mut Vec<TokenId>) {
        let [begin, end] = self.marks;
        tokens.push(begin);
        tokens.extend(std::iter::repeat_n(placeholder, num_embeds));
        tokens.push(end);
    }
}

/// Returns the tensors of a video's frames.
fn frames(media: &ProcessedMedia) -> impl Iterator<Item = &MediaTensor> {
    media.tensors.iter().filter(|tensor| tensor.shape.len() == 4)
}

fn of_video(reason: &str) -> MediaError {
    MediaError::Invalid { modality: Modality::Video, reason: reason.to_owned() }
}

impl FamilyProcessor for Gemma4 {
    fn modalities(&self) -> &[Modality] {
        &[Modality::Image, Modality::Video]
    }

    fn max_item_embeds(&self) -> usize {
        let of_frame = self.videos.as_ref().map_or(0, |videos| videos.sizes.most);
        self.sizes.most.max(of_frame)
    }

    fn placeholder(&self, modality: Modality) -> &str {
        match modality {
            Modality::Video => "<|video|>",
            _ => "<|image|>",
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
        let mut tokens = Vec::new();
        if media.modality != Modality::Video {
            self.push(self.image_token[0], media.num_embeds, &mut tokens);
            return tokens;
        }
        let times = media.tensors.iter().find(|tensor| tensor.shape.len() == 1);
        let times = times.map(|times| String::from_utf8_lossy(&times.data)).unwrap_or_default();
        let per_frame = media.num_embeds / frames(media).count().max(1);
        for (index, time) in times.lines().enumerate() {
            let space = if index > 0 { " " } else { "" };
            tokens.extend((self.encode)(&format!("{space}{time} ")));
            self.push(self.video_token[0], per_frame, &mut tokens);
        }
        tokens
    }

    fn is_placeholder(&self, token: TokenId) -> bool {
        [self.image_token[0], self.video_token[0]].contains(&token)
    }

    /// Each frame is encoded by itself.
    fn parts(&self, media: &Arc<ProcessedMedia>) -> Vec<Arc<ProcessedMedia>> {
        if media.modality != Modality::Video {
            return vec![Arc::clone(media)];
        }
        let num_embeds = media.num_embeds / frames(media).count().max(1);
        let part = |frame: &MediaTensor| {
            let tensors = vec![frame.clone()];
            Arc::new(ProcessedMedia { tensors, num_embeds, ..ProcessedMedia::clone(media) })
        };
        frames(media).map(part).collect()
    }

    fn image(
        &self,
        image: &RgbImage,
        _kwargs: &Map<String, Value>,
    ) -> Result<ProcessedMedia, MediaError> {
        let pixels = Pixels::of(image);
        let target = self.sizes.target([pixels.height, pixels.width]);
        let target =
            target.ok_or_else(|| llava::invalid("one side is much longer than the other"))?;
        let num_embeds = self.sizes.num_embeds(target);
        Ok(item(vec![pixels.resized(self.filter, target)], num_embeds, None))
    }

    fn chosen_frames(
        &self,
        total: usize,
        fps: Option<f64>,
        kwargs: &Map<String, Value>,
    ) -> Result<Vec<usize>, MediaError> {
        self.videos()?.sampling.chosen(total, fps, kwargs)
    }

    fn video(
        &self,
        video: &Video,
        _kwargs: &Map<String, Value>,
    ) -> Result<ProcessedMedia, MediaError> {
        let VideoRules { sizes, filter, .. } = self.videos()?;
        let fps = video.fps.unwrap_or(FPS_DEFAULT);
        let (mut tensors, mut num_embeds) = (Vec::with_capacity(video.frames.len() + 1), 0);
        for frame in &video.frames {
            let pixels = Pixels::of(frame);
            let target = sizes.target([pixels.height, pixels.width]);
            let target =
                target.ok_or_else(|| of_video("one side is much longer than the other"))?;
            num_embeds += sizes.num_embeds(target);
            tensors.extend(item(vec![pixels.resized(*filter, target)], 0, None).tensors);
        }
        let time = |index: &usize| {
            let seconds = *index as f64 / fps;
            format!("{:02}:{:02}", (seconds / 60.0).floor() as u64, (seconds % 60.0) as u64)
        };
        let times: Vec<String> = video.indices.iter().map(time).collect();
        let times = times.join("\n").into_bytes();
        let (shape, data) = (vec![times.len()], times.into());
        tensors.push(MediaTensor { shape, dtype: MediaDtype::U8, data });
        Ok(ProcessedMedia { modality: Modality::Video, tensors, num_embeds, grid: None })
    }
}
