//! Images of InternVL: tiles in the nearest ratio, and a thumbnail (HF `GotOcr2ImageProcessor`,
//! `InternVLProcessor`; `dynamic_preprocess` of the authors' code and of vLLM). Each frame of a
//! video is one tile, in the form of transformers alone. Llama Nemotron VL chooses other tiles.

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
use super::sampling::Steps;
use super::{Encode, item, tiles, token_of};
use crate::media::{frames::Video, processor::FamilyProcessor};
use crate::model::ConfigError;
use crate::model::config::Fields;
use crate::model::vision::{CONTEXT_TOKEN, ProcessorConfig, TileImages, VisionFamily};

/// The most tiles that a config may ask for.
const TILES_MAX: usize = 64;

/// The text that stands for an image in prompts of the authors.
const IMAGE: &str = "<image>";
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
    rules: TileRules,
    /// Whether the model is in the form of its authors.
    is_of_authors: bool,
    /// The rules of videos, or why they are not served.
    videos: Result<VideoRules, String>,
    encode: Arc<Encode>,
}

/// The rules of an image's tiles.
struct TileRules {
    /// The least and the most tiles; `None` if images are not cut.
    limits: Option<[usize; 2]>,
    /// Whether the whole image follows several tiles.
    has_thumbnail: bool,
    filter: Filter,
    /// Returns the rows and columns of an image's tiles. It takes height and width, the side
    /// of a tile, and the least and the most tiles.
    grid: fn([usize; 2], usize, [usize; 2]) -> [usize; 2],
}

impl TileRules {
    /// Reads the fields of transformers' image processor, for tiles of `side` pixels.
    fn of_processor(fields: &Fields, side: usize) -> Result<Self, ConfigError> {
        const SIZE: &str = "size";
        fields::require_resize(fields)?;
        let tile = Size::Exact { height: side, width: side };
        if fields::size(fields, SIZE, true, tile)? != tile {
            return Err(fields.invalid(SIZE, &format!("{side} x {side}, the tower's image_size")));
        }
        // HF `InternVLProcessor` asks for tiles whatever its image processor says.
        let limits = Some(limits(fields, ["min_patches", "max_patches"], 12)?);
        let filter = fields::filter(fields, Filter::Bicubic)?;
        Ok(Self { limits, has_thumbnail: true, filter, grid: tiles::nearest_ratio })
    }

    /// Reads the fields of the authors' `config.json`.
    fn of_authors(fields: &Fields, family: VisionFamily) -> Result<Self, ConfigError> {
        let limits = limits(fields, ["min_dynamic_patch", "max_dynamic_patch"], 6)?;
        Ok(Self {
            limits: fields.flag_or("dynamic_image_size", false)?.then_some(limits),
            has_thumbnail: fields.flag_or("use_thumbnail", false)?,
            filter: Filter::BicubicOfPillow,
            grid: match family {
                VisionFamily::NemotronVl => tiles::best_covered,
                _ => tiles::nearest_ratio,
            },
        })
    }
}

/// Returns the least and the most tiles, which two fields have.
pub(super) fn limits(
    fields: &Fields,
    [least_name, most_name]: [&str; 2],
    default: usize,
) -> Result<[usize; 2], ConfigError> {
    let least = fields.size(least_name)?.unwrap_or(1);
    let most = fields.size(most_name)?.unwrap_or(default);
    match most > TILES_MAX || least > most {
        true => Err(fields.invalid(most_name, &format!("{least_name} ({least}) to {TILES_MAX}"))),
        false => Ok([least, most]),
    }
}

/// Returns the token in the places of embeddings of a model in the authors' form, whose
/// `config.json` has the fields `outer`.
///
/// # Errors
/// [`ConfigError::Missing`] if the tokenizer does not have it.
pub(super) fn context_token(outer: &Fields, encode: &Encode) -> Result<TokenId, ConfigError> {
    match *encode(CONTEXT_TOKEN) {
        [token] => Ok(token),
        _ => {
            let expected = format!("a tokenizer with the token {CONTEXT_TOKEN}");
            Err(outer.missing("image_token_id", &expected))
        }
    }
}

impl InternVl {
    /// Reads the processor of a model whose `config.json` has the fields `outer`.
    pub(super) fn read(
        family: VisionFamily,
        outer: &Fields,
        processor: &ProcessorConfig,
        encode: Arc<Encode>,
    ) -> Result<Self, ConfigError> {
        let images = TileImages::read(family, outer)?;
        let side = images.image_size;
        let is_of_authors = family != VisionFamily::InternVl;
        let rules = match is_of_authors {
            true => TileRules::of_authors(&processor.image, family)?,
            false => TileRules::of_processor(&processor.image, side)?,
        };
        let videos = match is_of_authors {
            true => Err("videos are served in the form of transformers alone".to_owned()),
            false => VideoRules::read(processor, images, Steps::InParts { first: None }),
        };
        let video_token = || <[TokenId; 1]>::try_from(encode(VIDEO)).ok();
        let whole = &processor.whole;
        Ok(Self {
            image_token: [images.placeholder],
            video_token: if is_of_authors { None } else { video_token() },
            start_token: token_of(whole, "start_image_token", "<img>", &*encode)?,
            end_token: token_of(whole, "end_image_token", "</img>", &*encode)?,
            num_embeds: images.num_embeds,
            side,
            rules,
            is_of_authors,
            videos,
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
        let most = self.rules.limits.map_or(1, |[_, most]| most);
        let thumbnail = usize::from(self.rules.has_thumbnail && self.rules.limits.is_some());
        (most + thumbnail) * self.num_embeds
    }

    fn placeholder(&self, modality: Modality) -> &str {
        match modality {
            Modality::Video => VIDEO,
            _ => CONTEXT_TOKEN,
        }
    }

    /// As the authors' model cards write prompts, and as vLLM reads them.
    fn other_placeholder(&self, modality: Modality) -> Option<&str> {
        (self.is_of_authors && modality == Modality::Image).then_some(IMAGE)
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
        let TileRules { limits, has_thumbnail, filter, grid } = self.rules;
        let limits = limits.unwrap_or([1, 1]);
        let grid = grid(before, self.side, limits);
        let whole = pixels.clone().resized(filter, grid.map(|count| count * self.side));
        let mut all = tiles::cut(&whole, grid, self.side);
        if has_thumbnail && all.len() > 1 {
            all.push(pixels.resized(filter, [self.side; 2]));
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
