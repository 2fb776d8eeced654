//! Images of InternVL: tiles in the nearest ratio, and a thumbnail (HF `GotOcr2ImageProcessor`,
//! `InternVLProcessor`).

use image::RgbImage;
use playhouse_actors::{
    logic::request::{
        ids::TokenId,
        media::{Modality, ProcessedMedia},
    },
    ports::MediaError,
};
use serde_json::{Map, Value};

use super::fields::{self, Size};
use super::resize::{Filter, Pixels};
use super::{item, tiles, token_of};
use crate::media::processor::FamilyProcessor;
use crate::model::ConfigError;
use crate::model::config::Fields;
use crate::model::vision::{ProcessorConfig, TileImages, VisionFamily};

/// The most tiles that a config may ask for.
const TILES_MAX: usize = 64;

/// The processor of one model.
#[derive(Debug)]
pub(super) struct InternVl {
    image_token: [TokenId; 1],
    start_token: TokenId,
    end_token: TokenId,
    num_embeds: usize,
    /// Pixels on a side of a tile.
    side: usize,
    /// The least and the most tiles; `None` if images are not cut.
    tiles: Option<[usize; 2]>,
    filter: Filter,
}

impl InternVl {
    /// Reads the processor of a model whose `config.json` has the fields `outer`.
    pub(super) fn read(
        family: VisionFamily,
        outer: &Fields,
        processor: &ProcessorConfig,
        encode: &dyn Fn(&str) -> Vec<TokenId>,
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
            start_token: token_of(whole, "start_image_token", "<img>", encode)?,
            end_token: token_of(whole, "end_image_token", "</img>", encode)?,
            num_embeds: images.num_embeds,
            side,
            tiles: Some([least, most]),
            filter: fields::filter(fields, Filter::Bicubic)?,
        })
    }
}

impl FamilyProcessor for InternVl {
    fn modalities(&self) -> &[Modality] {
        &[Modality::Image]
    }

    fn max_item_embeds(&self) -> usize {
        let tiles = self.tiles.map_or(1, |[_, most]| most + 1);
        tiles * self.num_embeds
    }

    fn placeholder(&self, _modality: Modality) -> &str {
        "<IMG_CONTEXT>"
    }

    fn placeholder_tokens(&self, _modality: Modality) -> &[TokenId] {
        &self.image_token
    }

    fn tokens(&self, media: &ProcessedMedia) -> Vec<TokenId> {
        let images = std::iter::repeat_n(self.image_token[0], media.num_embeds);
        [self.start_token].into_iter().chain(images).chain([self.end_token]).collect()
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
}
