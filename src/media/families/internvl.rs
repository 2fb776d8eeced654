//! Images of InternVL: tiles in the nearest ratio, and a thumbnail (HF `GotOcr2ImageProcessor`,
//! `InternVLProcessor`). Each frame of a video is one tile.

use std::sync::Arc;

use image::RgbImage;
use playhouse_actors::{
    logic::request::{
        ids::TokenId,
        media::{MediaTensor, Modality, ProcessedMedia},
    },
    ports::MediaError,
};
use serde_json::{Map, Value};

use super::fields::{self, Size};
use super::internvl_video::VideoRules;
use super::resize::{Filter, Pixels};
use super::{Encode, item, tiles, token_of};
use crate::media::{frames::Video, processor::FamilyProcessor};
use crate::model::ConfigError;
use crate::model::config::Fields;
use crate::model::vision::{ProcessorConfig, TileImages, VisionFamily};

/// The most tiles that a config may ask for.
const TILES_MAX: usize = 64;

/// The text that stands for a video.
const VIDEO: &str = "<video>";

/// The processor of one model.
pub(super) struct InternVl {
    image_token: [TokenId; 1],
    /// The placeholder of a video, if the tokenizer has it as one token.
    video_token: Option<[TokenId; 1]>,
    start_token: TokenId,
    end_token: TokenId,
    num_embeds: usize,
    /// Pixels on a side of a tile.
    side: usize,
    /// The least and the most tiles; `None` if images are not cut.
    tiles: Option<[usize; 2]>,
    filter: Filter,
    /// The rules of videos, or why they are not served.
    videos: Result<VideoRules, String>,
    encode: Arc<Encode>,
}

impl InternVl {
    /// Reads the processor of a model whose `config.json` has the fields `outer`.
    pub(super) fn read(
        family: VisionFamily,
        outer: &Fields,
        processor: &ProcessorConfig,
        encode: Arc<Encode>,
    ) -> Result<Self, ConfigError> {
        const SIZE: &str = "size";
        const MOST: &str = "max_patches";
        let images = TileImages::read(family, outer)?;
        let fields = &processor.image;
        fields::require_resize(fields)?;
        let side = images.image_size;
        let tile = Size::Exact { height: side, width: side };
        if fields::size(fields, SIZE, true, tile)? != tile {
            return Err(fields.invalid(SIZE, &format!("{side} x {side}, the tower's image_size")));
        }
        let least = fields.size("min_patches")?.unwrap_or(1);
        let most = fields.size(MOST)?.unwrap_or(12);
        if most > TILES_MAX || least > most {
            return Err(fields.invalid(MOST, &format!("min_patches ({least}) to {TILES_MAX}")));
        }
        // HF `InternVLProcessor` asks for tiles whatever its image processor says.
        let whole = &processor.whole;
        Ok(Self {
            image_token: [images.placeholder],
            video_token: <[TokenId; 1]>::try_from(encode(VIDEO)).ok(),
            start_token: token_of(whole, "start_image_token", "<img>", &*encode)?,
            end_token: token_of(whole, "end_image_token", "</img>", &*encode)?,
            num_embeds: images.num_embeds,
            side,
            tiles: Some([least, most]),
            filter: fields::filter(fields, Filter::Bicubic)?,
            videos: VideoRules::read(processor, images),
            encode,
        })
    }

    /// Returns the rules of videos.
    fn videos(&self) -> Result<&VideoRules, MediaError> {
        self.videos.as_ref().map_err(|reason| MediaError::Invalid {
            modality: Modality::Video,
            reason: reason.clone(),
        })
    }

    /// Appends the tokens of `num_embeds` embeddings, and the marks around them.
    fn push(&self, num_embeds: usize, tokens: &mut Vec<TokenId>) {
        tokens.push(self.start_token);
        tokens.extend(std::iter::repeat_n(self.image_token[0], num_embeds));
        tokens.push(self.end_token);
    }
}

impl FamilyProcessor for InternVl {
    fn modalities(&self) -> &[Modality] {
        match self.video_token {
            Some(_) => &[Modality::Image, Modality::Video],
            None => &[Modality::Image],
        }
    }

    fn max_item_embeds(&self) -> usize {
        let tiles = self.tiles.map_or(1, |[_, most]| most + 1);
        tiles * self.num_embeds
    }

    fn placeholder(&self, modality: Modality) -> &str {
        match modality {
            Modality::Video => VIDEO,
            _ => "<IMG_CONTEXT>",
        }
    }

    fn placeholder_tokens(&self, modality: Modality) -> &[TokenId] {
        match modality {
            Modality::Image => &self.image_token,
            Modality::Video => match &self.video_token {
                Some(token) => token,
                None => &[],
            },
            Modality::Audio | Modality::Text => &[],
        }
    }

    fn tokens(&self, media: &ProcessedMedia) -> Vec<TokenId> {
        let mut tokens = Vec::new();
        if media.modality != Modality::Video {
            self.push(media.num_embeds, &mut tokens);
            return tokens;
        }
        for frame in 1..=media.tensors.len() {
            let line = if frame == 1 { "" } else { "\n" };
            tokens.extend((self.encode)(&format!("{line}Frame{frame}: ")));
            self.push(self.num_embeds, &mut tokens);
        }
        tokens
    }

    /// Each frame is encoded by itself.
    fn parts(&self, media: &Arc<ProcessedMedia>) -> Vec<Arc<ProcessedMedia>> {
        if media.modality != Modality::Video {
            return vec![Arc::clone(media)];
        }
        let part = |tensor: &MediaTensor| ProcessedMedia {
            tensors: vec![tensor.clone()],
            num_embeds: self.num_embeds,
            ..ProcessedMedia::clone(media)
        };
        media.tensors.iter().map(part).map(Arc::new).collect()
    }

    fn is_placeholder(&self, token: TokenId) -> bool {
        token == self.image_token[0]
    }

    fn image(
        &self,
        image: &RgbImage,
        _kwargs: &Map<String, Value>,
    ) -> Result<ProcessedMedia, MediaError> {
        let pixels = Pixels::of(image);
        let before = [pixels.height, pixels.width];
        let limits = self.tiles.unwrap_or([1, 1]);
        let grid = tiles::nearest_ratio(before, self.side, limits);
        let whole = pixels.clone().resized(self.filter, grid.map(|count| count * self.side));
        let mut all = tiles::cut(&whole, grid, self.side);
        if all.len() > 1 {
            all.push(pixels.resized(self.filter, [self.side; 2]));
        }
        let num_embeds = all.len() * self.num_embeds;
        Ok(item(all, num_embeds, None))
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
        let filter = self.videos()?.filter;
        let frames = video.frames.iter().flat_map(|frame| {
            let pixels = Pixels::of(frame).resized(filter, [self.side; 2]);
            item(vec![pixels], self.num_embeds, None).tensors
        });
        let tensors: Vec<MediaTensor> = frames.collect();
        let num_embeds = tensors.len() * self.num_embeds;
        Ok(ProcessedMedia { modality: Modality::Video, tensors, num_embeds, grid: None })
    }
}
