//! Images of LFM2-VL: any size, in whole squares of patches. A large image is cut into tiles, and a
//! smaller form of it follows (HF `Lfm2VlImageProcessor`, `Lfm2VlProcessor`). Each tile is encoded
//! by itself.

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

use super::llava::invalid;
use super::resize::{Filter, Pixels};
use super::{Encode, fields, item, tiles, token_of};
use crate::media::processor::FamilyProcessor;
use crate::model::ConfigError;
use crate::model::config::Fields;
use crate::model::vision::{ProcessorConfig, Siglip2Images};

/// The most tiles that a config may ask for.
const TILES_MAX: usize = 64;

/// The processor of one model.
pub(super) struct Lfm2 {
    image_token: [TokenId; 1],
    /// The tokens before and after an image, if there are some. Tiles have marks then, too.
    marks: Option<[TokenId; 2]>,
    /// Pixels on a side of a square, which is one embedding.
    side: usize,
    /// Pixels on a side of a patch.
    patch: usize,
    /// The least and the most embeddings of an image that is not cut.
    limits: [usize; 2],
    tiles: Option<TileRules>,
    filter: Filter,
    encode: Arc<Encode>,
}

/// The rules of an image in tiles.
#[derive(Debug)]
struct TileRules {
    /// The least and the most tiles.
    limits: [usize; 2],
    /// Pixels on a side of a tile.
    side: usize,
    has_thumbnail: bool,
    /// How many times the most pixels of an image an image that is not cut may have.
    tolerance: f64,
}

impl TileRules {
    /// Reads the rules of tiles, whose sides are multiples of `square` pixels.
    fn read(fields: &Fields, square: usize) -> Result<Option<Self>, ConfigError> {
        const SIDE: &str = "tile_size";
        const LEAST: &str = "min_tiles";
        const MOST: &str = "max_tiles";
        let size = |field: &str, default: usize| {
            Ok::<usize, ConfigError>(fields.size(field)?.unwrap_or(default))
        };
        let limits = [size(LEAST, 2)?, size(MOST, 10)?];
        if !fields.flag_or("do_image_splitting", true)? || limits == [1, 1] {
            return Ok(None);
        }
        if limits[0] < 2 {
            return Err(fields.invalid(LEAST, "at least 2, if max_tiles is not 1"));
        }
        if limits[1] > TILES_MAX || limits[0] > limits[1] {
            let expected = format!("min_tiles ({}) to {TILES_MAX}", limits[0]);
            return Err(fields.invalid(MOST, &expected));
        }
        let side = size(SIDE, 512)?;
        if !side.is_multiple_of(square) {
            return Err(fields.invalid(SIDE, &format!("a multiple of {square}, a square")));
        }
        Ok(Some(Self {
            limits,
            side,
            has_thumbnail: fields.flag_or("use_thumbnail", true)?,
            tolerance: fields.positive("max_pixels_tolerance")?.unwrap_or(2.0),
        }))
    }
}

impl Lfm2 {
    /// Reads the processor of a model whose `config.json` has the fields `outer`.
    pub(super) fn read(
        outer: &Fields,
        processor: &ProcessorConfig,
        encode: Arc<Encode>,
    ) -> Result<Self, ConfigError> {
        const FACTOR: &str = "downsample_factor";
        const PATCH: &str = "encoder_patch_size";
        const MOST: &str = "max_image_tokens";
        let (fields, whole) = (&processor.image, &processor.whole);
        let images = Siglip2Images::read(outer)?;
        let size = |field: &str, default: usize| {
            Ok::<usize, ConfigError>(fields.size(field)?.unwrap_or(default))
        };
        let (factor, patch) = (size(FACTOR, 2)?, size(PATCH, 16)?);
        if factor != images.merge {
            return Err(fields.invalid(FACTOR, &format!("{}, that of the model", images.merge)));
        }
        if patch != images.patch {
            return Err(fields.invalid(PATCH, &format!("{}, that of the tower", images.patch)));
        }
        let limits = [size("min_image_tokens", 64)?, size(MOST, 256)?];
        if limits[0] > limits[1] {
            return Err(fields.invalid(MOST, &format!("at least {}", limits[0])));
        }
        let mark = |field: &str, text: &str| token_of(whole, field, text, &*encode);
        let marks = match whole.flag_or("use_image_special_tokens", true)? {
            true => Some([
                mark("image_start_token", "<|image_start|>")?,
                mark("image_end_token", "<|image_end|>")?,
            ]),
            false => None,
        };
        Ok(Self {
            image_token: [images.placeholder],
            marks,
            side: factor * patch,
            patch,
            limits,
            tiles: TileRules::read(fields, factor * patch)?,
            filter: fields::filter(fields, Filter::Bilinear)?,
            encode,
        })
    }

    /// Returns a side in whole squares, to the nearest one.
    fn rounded(&self, side: usize) -> usize {
        (side as f64 / self.side as f64).round_ties_even() as usize * self.side
    }

    /// Returns the size of an image that is not cut: HF `smart_resize` of LFM2-VL.
    fn target(&self, size: [usize; 2]) -> [usize; 2] {
        let by = self.side as f64;
        let area = (size[0] * size[1]) as f64;
        let [least, most] = self.limits.map(|count| count * self.side * self.side);
        let rounded = size.map(|side| self.rounded(side).max(self.side));
        let pixels = rounded[0] * rounded[1];
        if pixels > most {
            let shrink = (area / most as f64).sqrt();
            size.map(|side| (side as f64 / shrink / by).floor().max(1.0) as usize * self.side)
        } else if pixels < least {
            let grow = (least as f64 / area).sqrt();
            size.map(|side| (side as f64 * grow / by).ceil() as usize * self.side)
        } else {
            rounded
        }
    }

    /// Returns the rules of tiles of an image that is too large for one.
    fn cut(&self, size: [usize; 2]) -> Option<&TileRules> {
        let pixels: usize = size.iter().map(|side| self.rounded(*side).max(self.patch)).product();
        let most = (self.limits[1] * self.side * self.side) as f64;
        self.tiles.as_ref().filter(|rules| pixels as f64 > most * rules.tolerance)
    }

    /// Returns the embeddings of an image in pixels.
    fn num_embeds(&self, [height, width]: [usize; 2]) -> usize {
        height / self.side * (width / self.side)
    }

    /// Returns the embeddings of a tensor of images of one size.
    fn embeds_of(&self, tensor: &MediaTensor) -> usize {
        match *tensor.shape {
            [count, height, width, 3] => count * self.num_embeds([height, width]),
            _ => 0,
        }
    }

    /// Appends the tokens of a text, if the model has marks.
    fn push_mark(&self, text: &str, tokens: &mut Vec<TokenId>) {
        if self.marks.is_some() {
            tokens.extend((self.encode)(text));
        }
    }
}

/// Returns the rows and columns of an item's tiles; none if it is one image.
fn grid_of(media: &ProcessedMedia) -> [usize; 2] {
    let grid = media.tensors.iter().find_map(|tensor| match *tensor.shape {
        [rows, columns, 0] => Some([rows, columns]),
        _ => None,
    });
    grid.unwrap_or_default()
}

impl FamilyProcessor for Lfm2 {
    fn modalities(&self) -> &[Modality] {
        &[Modality::Image]
    }

    fn max_item_embeds(&self) -> usize {
        let tile = self.tiles.as_ref().map_or(0, |rules| self.num_embeds([rules.side; 2]));
        self.limits[1].max(tile)
    }

    fn placeholder(&self, _modality: Modality) -> &str {
        "<image>"
    }

    fn placeholder_tokens(&self, _modality: Modality) -> &[TokenId] {
        &self.image_token
    }

    fn tokens(&self, media: &ProcessedMedia) -> Vec<TokenId> {
        let [rows, columns] = grid_of(media);
        let mut tokens: Vec<TokenId> = self.marks.iter().map(|[start, _]| *start).collect();
        let images = media.tensors.iter().map(|tensor| self.embeds_of(tensor));
        for (index, count) in images.filter(|count| *count > 0).enumerate() {
            if index < rows * columns {
                let (row, column) = (index / columns + 1, index % columns + 1);
                self.push_mark(&format!("<|img_row_{row}_col_{column}|>"), &mut tokens);
            } else if index > 0 {
                self.push_mark("<|img_thumbnail|>", &mut tokens);
            }
            tokens.extend(std::iter::repeat_n(self.image_token[0], count));
        }
        tokens.extend(self.marks.iter().map(|[_, end]| *end));
        tokens
    }

    fn is_placeholder(&self, token: TokenId) -> bool {
        token == self.image_token[0]
    }

    fn parts(&self, media: &Arc<ProcessedMedia>) -> Vec<Arc<ProcessedMedia>> {
        if media.tensors.len() == 1 {
            return vec![Arc::clone(media)];
        }
        let part = |tensor: &MediaTensor| {
            let num_embeds = self.embeds_of(tensor);
            let tensors = vec![tensor.clone()];
            (num_embeds > 0).then(|| {
                Arc::new(ProcessedMedia { tensors, num_embeds, ..ProcessedMedia::clone(media) })
            })
        };
        media.tensors.iter().filter_map(part).collect()
    }

    fn image(
        &self,
        image: &RgbImage,
        _kwargs: &Map<String, Value>,
    ) -> Result<ProcessedMedia, MediaError> {
        let pixels = Pixels::of(image);
        let before = [pixels.height, pixels.width];
        let size = self.target(before);
        let (num_embeds, most) = (self.num_embeds(size), self.max_item_embeds());
        if num_embeds > most {
            let [height, width] = size;
            let reason =
                format!("it becomes {height} x {width} pixels, more than {most} embeddings");
            return Err(invalid(&reason));
        }
        let one = |pixels: Pixels, size: [usize; 2]| {
            item(vec![pixels.resized(self.filter, size)], self.num_embeds(size), None)
        };
        let Some(rules) = self.cut(before) else { return Ok(one(pixels, size)) };
        let grid = tiles::nearest_ratio(before, rules.side, rules.limits);
        let whole = pixels.clone().resized(self.filter, grid.map(|count| count * rules.side));
        let own_size = [rules.side; 2];
        let mut media = ProcessedMedia {
            modality: Modality::Image,
            tensors: Vec::new(),
            num_embeds: 0,
            grid: None,
        };
        let mut all: Vec<ProcessedMedia> = tiles::cut(&whole, grid, rules.side)
            .into_iter()
            .map(|tile| one(tile, own_size))
            .collect();
        if rules.has_thumbnail {
            all.push(one(pixels, size));
        }
        for part in all {
            media.num_embeds += part.num_embeds;
            media.tensors.extend(part.tensors);
        }
        Ok(tiles::with_grid(media, grid))
    }
}
