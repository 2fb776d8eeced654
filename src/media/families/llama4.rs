//! Images of Llama 4: tiles of a canvas, and the whole image in the size of one (HF
//! `Llama4ImageProcessor`, `Llama4Processor`).

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
use super::{item, tiles};
use crate::media::processor::FamilyProcessor;
use crate::model::ConfigError;
use crate::model::config::Fields;
use crate::model::vision::{ProcessorConfig, TileImages, VisionFamily};

/// Most tiles that a canvas may have.
const TILES_MAX: usize = 1_024;

/// The tokens around the tiles of an image.
#[derive(Debug)]
struct Marks {
    start: Vec<TokenId>,
    /// Between the tiles of a row.
    column: Vec<TokenId>,
    /// After a row of tiles.
    row: Vec<TokenId>,
    end: Vec<TokenId>,
}

/// The processor of one model.
#[derive(Debug)]
pub(super) struct Llama4 {
    /// The token of an image in a text. It stays before the whole image.
    image_token: Vec<TokenId>,
    patch_token: TokenId,
    marks: Marks,
    /// The embeddings of a tile.
    num_embeds: usize,
    /// Pixels on a side of a tile.
    side: usize,
    /// The rows and columns of tiles of each canvas, in the order of HF.
    canvases: Vec<[usize; 2]>,
    /// Whether an image grows as far as a canvas allows.
    fills_canvas: bool,
    filter: Filter,
}

impl Llama4 {
    /// Reads the processor of a model whose `config.json` has the fields `outer`.
    pub(super) fn read(
        family: VisionFamily,
        outer: &Fields,
        processor: &ProcessorConfig,
        encode: &dyn Fn(&str) -> Vec<TokenId>,
    ) -> Result<Self, ConfigError> {
        const TILES: &str = "max_patches";
        let images = TileImages::read(family, outer)?;
        let (fields, side) = (&processor.image, images.image_size);
        let own = Size::Exact { height: side, width: side };
        if fields::size(fields, "size", true, Size::Exact { height: 336, width: 336 })? != own {
            let expected = format!("height and width {side}, the tower's image_size");
            return Err(fields.invalid("size", &expected));
        }
        fields::require_resize(fields)?;
        let most = fields.size(TILES)?.unwrap_or(16);
        if most > TILES_MAX {
            return Err(fields.invalid(TILES, &format!("at most {TILES_MAX}")));
        }
        Ok(Self {
            image_token: encode("<|image|>"),
            patch_token: images.placeholder,
            marks: Marks {
                start: encode("<|image_start|>"),
                column: encode("<|tile_x_separator|>"),
                row: encode("<|tile_y_separator|>"),
                end: encode("<|image_end|>"),
            },
            num_embeds: images.num_embeds,
            side,
            canvases: canvases(most),
            fills_canvas: fields.flag_or("resize_to_max_canvas", false)?,
            filter: fields::filter(fields, Filter::Bilinear)?,
        })
    }

    /// Returns the rows and columns of the canvas for an image of `size`: that on which it grows
    /// least, or if it must shrink, shrinks least. Of several, the smallest. As in torch, in single
    /// precision.
    fn canvas(&self, size: [usize; 2]) -> [usize; 2] {
        let scale = |canvas: &[usize; 2]| {
            let of = |axis: usize| (canvas[axis] * self.side) as f32 / size[axis] as f32;
            of(0).min(of(1))
        };
        let scales = || self.canvases.iter().map(scale);
        let growing = || scales().filter(|scale| *scale >= 1.0);
        let best = match (growing().count() > 0, self.fills_canvas) {
            (true, false) => growing().fold(f32::INFINITY, f32::min),
            (true, true) => growing().fold(0.0, f32::max),
            (false, _) => scales().fold(0.0, f32::max),
        };
        let found = self.canvases.iter().filter(|canvas| scale(canvas) == best);
        found.min_by_key(|[rows, columns]| rows * columns).copied().unwrap_or([1, 1])
    }

    /// Returns the size of an image on its canvas of `whole` pixels: HF
    /// `get_max_res_without_distortion`.
    fn fitted(&self, size: [usize; 2], whole: [usize; 2]) -> [usize; 2] {
        // A side that comes from the list of canvases is a tensor in HF, and its ratio has single
        // precision.
        let is_tensor = |axis: usize| self.fills_canvas || whole[axis] < size[axis].max(self.side);
        let target = |axis: usize| match is_tensor(axis) {
            true => whole[axis],
            false => size[axis].max(self.side),
        };
        let scale = |axis: usize| match is_tensor(axis) {
            true => f64::from(target(axis) as f32 / size[axis] as f32),
            false => target(axis) as f64 / size[axis] as f64,
        };
        let scaled = |axis: usize, by: usize| {
            let scale = scale(by);
            let length = match is_tensor(by) {
                true => f64::from(size[axis] as f32 * scale as f32),
                false => size[axis] as f64 * scale,
            };
            (length.floor() as usize).min(target(axis)).max(1)
        };
        let is_wide = match is_tensor(0) || is_tensor(1) {
            true => (scale(1) as f32) < (scale(0) as f32),
            false => scale(1) < scale(0),
        };
        match is_wide {
            true => [scaled(0, 1), target(1)],
            false => [target(0), scaled(1, 0)],
        }
    }
}

/// Returns the rows and columns of all canvases of at most `most` tiles: HF
/// `find_supported_resolutions`, by their ratios in the order of their discovery.
fn canvases(most: usize) -> Vec<[usize; 2]> {
    let mut by_ratio: Vec<(f64, Vec<[usize; 2]>)> = Vec::new();
    for count in (1..=most).rev() {
        for rows in (1..=count).filter(|rows| count % rows == 0) {
            let columns = count / rows;
            let ratio = rows as f64 / columns as f64;
            match by_ratio.iter_mut().find(|(known, _)| *known == ratio) {
                Some((_, canvases)) => canvases.push([rows, columns]),
                None => by_ratio.push((ratio, vec![[rows, columns]])),
            }
        }
    }
    by_ratio.into_iter().flat_map(|(_, canvases)| canvases).collect()
}

impl FamilyProcessor for Llama4 {
    fn modalities(&self) -> &[Modality] {
        &[Modality::Image]
    }

    fn max_item_embeds(&self) -> usize {
        let tiles = self.canvases.iter().map(|[rows, columns]| rows * columns).max();
        (tiles.unwrap_or(1) + 1) * self.num_embeds
    }

    fn placeholder(&self, _: Modality) -> &str {
        "<|image|>"
    }

    fn placeholder_tokens(&self, modality: Modality) -> &[TokenId] {
        match modality {
            Modality::Image => &self.image_token,
            _ => &[],
        }
    }

    fn tokens(&self, media: &ProcessedMedia) -> Vec<TokenId> {
        let patches = || std::iter::repeat_n(self.patch_token, self.num_embeds);
        let [rows, columns] = tiles::grid(media);
        let mut tokens = self.marks.start.clone();
        for _ in 0..rows {
            for column in 0..columns {
                tokens.extend(patches());
                if column + 1 < columns {
                    tokens.extend(&self.marks.column);
                }
            }
            tokens.extend(&self.marks.row);
        }
        tokens.extend(&self.image_token);
        tokens.extend(patches());
        tokens.extend(&self.marks.end);
        tokens
    }

    fn is_placeholder(&self, token: TokenId) -> bool {
        token == self.patch_token
    }

    fn image(
        &self,
        image: &RgbImage,
        _kwargs: &Map<String, Value>,
    ) -> Result<ProcessedMedia, MediaError> {
        let pixels = Pixels::of(image);
        let before = [pixels.height, pixels.width];
        let canvas = self.canvas(before);
        let whole = canvas.map(|tiles| tiles * self.side);
        let fitted = pixels.clone().resized(self.filter, self.fitted(before, whole));
        let padded = fitted.part([0, 0], whole, [0; 3]);
        let mut all = tiles::cut(&padded, canvas, self.side);
        let is_cut = all.len() > 1;
        if is_cut {
            all.push(pixels.resized(self.filter, [self.side; 2]));
        }
        let num_embeds = all.len() * self.num_embeds;
        let grid = if is_cut { canvas } else { [0, 0] };
        Ok(tiles::with_grid(item(all, num_embeds, None), grid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lists are those of HF `find_supported_resolutions`.
    #[test]
    fn canvases_are_in_the_order_of_transformers() {
        assert_eq!(canvases(1), [[1, 1]]);
        let four = [[1, 4], [2, 2], [1, 1], [4, 1], [1, 3], [3, 1], [1, 2], [2, 1]];
        assert_eq!(canvases(4), four);
    }
}
