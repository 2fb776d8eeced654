//! Images of LLaVA-NeXT: the whole image in the size of a tile, and tiles of the image in the best
//! of some sizes (HF `LlavaNextImageProcessor`, `LlavaNextProcessor`).

use image::RgbImage;
use playhouse_actors::{
    logic::request::{
        ids::TokenId,
        media::{MediaDtype, MediaTensor, Modality, ProcessedMedia},
    },
    ports::MediaError,
};
use serde_json::{Map, Value};

use super::fields::{self, Size};
use super::resize::{Filter, Pixels};
use super::{item, tiles};
use crate::media::processor::FamilyProcessor;
use crate::model::ConfigError;
use crate::model::config::Fields;
use crate::model::vision::{AnyResTiles, ProcessorConfig, TileImages, VisionFamily};

/// The sizes of models that name none.
const PINPOINTS: [[usize; 2]; 5] = [[336, 672], [672, 336], [672, 672], [1_008, 336], [336, 1_008]];
/// The most sizes that a config may have, and the most tiles on a side of an image.
const PINPOINTS_MAX: usize = 256;
const TILES_MAX: usize = 64;
/// The side of a tile of LLaVA-OneVision, and the most tiles on a side of an image, if a config
/// names no sizes.
const ONEVISION_SIDE: usize = 384;
const ONEVISION_TILES: usize = 6;

/// The processor of one model.
#[derive(Debug)]
pub(super) struct LlavaNext {
    image_token: [TokenId; 1],
    /// Features on a side of a tile.
    features: usize,
    /// Pixels on a side of a tile.
    side: usize,
    /// The sizes of an image in tiles.
    pinpoints: Vec<[usize; 2]>,
    filter: Filter,
}

impl LlavaNext {
    /// Reads the processor of a model whose `config.json` has the fields `outer`.
    pub(super) fn read(
        family: VisionFamily,
        outer: &Fields,
        processor: &ProcessorConfig,
    ) -> Result<Self, ConfigError> {
        const CROP: &str = "crop_size";
        const SIZE: &str = "size";
        let images = TileImages::read(family, outer)?;
        let (fields, side) = (&processor.image, images.image_size);
        let tile = Size::Exact { height: side, width: side };
        let is_onevision = family == VisionFamily::LlavaOnevision;
        let exact = |side: usize| Size::Exact { height: side, width: side };
        // HF `LlavaOnevisionImageProcessor` cuts nothing from a tile.
        let crop = if is_onevision { tile } else { exact(224) };
        let crop = fields::size(fields, CROP, true, crop)?;
        if crop != tile {
            return Err(fields.invalid(CROP, &format!("{side} x {side}, the tower's image_size")));
        }
        fields::require_resize(fields)?;
        // Tiles of another size would be resized again, and then cut.
        let size = if is_onevision { exact(ONEVISION_SIDE) } else { tile };
        let size = fields::size(fields, SIZE, true, size)?;
        if size != tile && size != Size::Shortest(side) {
            let expected = format!("{side} x {side} or shortest_edge {side}, as {CROP}");
            return Err(fields.invalid(SIZE, &expected));
        }
        Ok(Self {
            image_token: [images.placeholder],
            features: images.num_embeds.isqrt(),
            side,
            pinpoints: pinpoints(fields, side, family)?,
            filter: fields::filter(fields, Filter::Bicubic)?,
        })
    }

    /// Returns the features on a side of a tile.
    pub(super) fn features(&self) -> usize {
        self.features
    }

    /// Returns the pixels on a side of a tile.
    pub(super) fn side(&self) -> usize {
        self.side
    }

    /// Returns the rows and columns of features in the sizes of an image, before any are left out.
    pub(super) fn grids(&self) -> impl Iterator<Item = [usize; 2]> {
        self.pinpoints.iter().map(|size| size.map(|all| all / self.side * self.features))
    }

    /// Returns the whole image in the size of a tile, its tiles, and their rows and columns.
    pub(super) fn cut(&self, image: &RgbImage) -> (Vec<Pixels>, AnyResTiles) {
        let pixels = Pixels::of(image);
        let original = [pixels.height, pixels.width];
        let best = Self::best(original, &self.pinpoints);
        let whole = best.unwrap_or([self.side; 2]);
        let scale = [0, 1].map(|axis| whole[axis] as f64 / original[axis] as f64);
        let fitted = |axis: usize, scale: f64| {
            ((original[axis] as f64 * scale).ceil() as usize).clamp(1, whole[axis])
        };
        let size = match scale[1] < scale[0] {
            true => [fitted(0, scale[1]), whole[1]],
            false => [whole[0], fitted(1, scale[0])],
        };
        let resized = pixels.clone().resized(self.filter, size);
        let first = [0, 1].map(|axis| -(((whole[axis] - size[axis]) / 2) as isize));
        let padded = resized.part(first, whole, [0; 3]);
        let grid = whole.map(|all| all / self.side);
        let mut all = vec![pixels.resized(self.filter, [self.side; 2])];
        all.extend(tiles::cut(&padded, grid, self.side));
        (all, AnyResTiles { grid, original })
    }

    /// Returns an item of such an image.
    pub(super) fn item(all: Vec<Pixels>, tiles: AnyResTiles, num_embeds: usize) -> ProcessedMedia {
        let mut media = item(all, num_embeds, None);
        let (shape, data) = (tiles.shape(), Vec::new().into());
        media.tensors.push(MediaTensor { shape, dtype: MediaDtype::U8, data });
        media
    }

    /// Returns the size in which an image of `[height, width]` keeps the most pixels, and of equal
    /// ones that with the fewest others: HF `select_best_resolution`.
    fn best([height, width]: [usize; 2], pinpoints: &[[usize; 2]]) -> Option<[usize; 2]> {
        let (mut best, mut most, mut least_waste) = (None, 0, usize::MAX);
        for [rows, columns] in pinpoints {
            let scale = (*columns as f64 / width as f64).min(*rows as f64 / height as f64);
            let scaled = |side: usize| (side as f64 * scale) as usize;
            let kept = (scaled(width) * scaled(height)).min(width * height);
            let waste = (rows * columns).saturating_sub(kept);
            if kept > most || kept == most && waste < least_waste {
                (best, most, least_waste) = (Some([*rows, *columns]), kept, waste);
            }
        }
        best
    }
}

/// Reads the sizes of images in tiles of `side` pixels.
fn pinpoints(
    fields: &Fields,
    side: usize,
    family: VisionFamily,
) -> Result<Vec<[usize; 2]>, ConfigError> {
    const FIELD: &str = "image_grid_pinpoints";
    let size = |value: &Value| {
        let sides: Option<Vec<usize>> =
            value.as_array()?.iter().map(|side| usize::try_from(side.as_u64()?).ok()).collect();
        let sides = <[usize; 2]>::try_from(sides?).ok()?;
        let fits =
            |all: &usize| all.is_multiple_of(side) && (1..=TILES_MAX).contains(&(all / side));
        sides.iter().all(fits).then_some(sides)
    };
    let found: Option<Vec<[usize; 2]>> = match fields.value(FIELD) {
        None if family == VisionFamily::LlavaOnevision => (side == ONEVISION_SIDE).then(|| {
            let size = |at: usize| [at / ONEVISION_TILES + 1, at % ONEVISION_TILES + 1];
            let all = (0..ONEVISION_TILES.pow(2)).map(size);
            all.map(|size| size.map(|tiles| tiles * side)).collect()
        }),
        None => Some(PINPOINTS.to_vec()),
        Some(value) => value.as_array().and_then(|list| list.iter().map(size).collect()),
    };
    let found = found.filter(|sizes| (1..=PINPOINTS_MAX).contains(&sizes.len()));
    let expected = format!("a list of heights and widths, multiples of {side}");
    found.ok_or_else(|| fields.invalid(FIELD, &expected))
}

impl FamilyProcessor for LlavaNext {
    fn modalities(&self) -> &[Modality] {
        &[Modality::Image]
    }

    fn max_item_embeds(&self) -> usize {
        let most = |[rows, columns]: [usize; 2]| rows * (columns + 1);
        let tiles = self.grids().map(most).max().unwrap_or_default();
        self.features * self.features + tiles
    }

    fn placeholder(&self, _modality: Modality) -> &str {
        "<image>"
    }

    fn placeholder_tokens(&self, _modality: Modality) -> &[TokenId] {
        &self.image_token
    }

    fn tokens(&self, media: &ProcessedMedia) -> Vec<TokenId> {
        vec![self.image_token[0]; media.num_embeds]
    }

    fn is_placeholder(&self, token: TokenId) -> bool {
        token == self.image_token[0]
    }

    fn image(
        &self,
        image: &RgbImage,
        _kwargs: &Map<String, Value>,
    ) -> Result<ProcessedMedia, MediaError> {
        let (all, tiles) = self.cut(image);
        Ok(Self::item(all, tiles, tiles.num_embeds(self.features)))
    }
}
