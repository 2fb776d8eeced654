//! Images of Ovis 2: tiles, and the whole image before them (HF `Ovis2ImageProcessor`,
//! `Ovis2Processor`).

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
use super::internvl::limits;
use super::resize::{Filter, Pixels};
use super::{item, tiles};
use crate::media::processor::FamilyProcessor;
use crate::model::ConfigError;
use crate::model::config::Fields;
use crate::model::vision::{OvisImages, OvisToken, ProcessorConfig};

/// The text that stands for an image.
const IMAGE: &str = "<image>";
/// The share of an image that its tiles must show without shrinking it.
const COVERED: f64 = 0.9;

/// The processor of one model.
#[derive(Debug)]
pub(super) struct Ovis2 {
    images: OvisImages,
    /// The tokens of [`IMAGE`].
    placeholder: Vec<TokenId>,
    filter: Filter,
    /// The least and the most tiles; `None` if images are not cut.
    limits: Option<[usize; 2]>,
    /// Whether tiles must show enough of an image. Without, their ratio is the nearest.
    covers: bool,
}

impl Ovis2 {
    /// Reads the processor of a model whose `config.json` has the fields `outer`.
    pub(super) fn read(
        outer: &Fields,
        processor: &ProcessorConfig,
        encode: &dyn Fn(&str) -> Vec<TokenId>,
    ) -> Result<Self, ConfigError> {
        const SIZE: &str = "size";
        const CENTER: &str = "do_center_crop";
        const LENGTH: &str = "image_seq_length";
        let images = OvisImages::read(outer)?;
        let fields = &processor.image;
        fields::require_resize(fields)?;
        let side = images.image_size;
        let default = Size::Exact { height: 384, width: 384 };
        if fields::size(fields, SIZE, true, default)? != (Size::Exact { height: side, width: side })
        {
            return Err(fields.invalid(SIZE, &format!("{side} x {side}, the tower's image_size")));
        }
        if fields.flag_or(CENTER, false)? {
            return Err(fields.invalid(CENTER, "false"));
        }
        if processor.whole.size(LENGTH)?.is_some_and(|length| length != images.squares) {
            let expected = format!("{}, the tower's embeddings of a tile", images.squares);
            return Err(processor.whole.invalid(LENGTH, &expected));
        }
        let limits = limits(fields, ["min_patches", "max_patches"], 12)?;
        let is_cut = fields.flag_or("crop_to_patches", false)? && limits[1] > 1;
        let placeholder = encode(IMAGE);
        if placeholder.is_empty() {
            return Err(outer.missing("image_token_id", "a tokenizer with the text <image>"));
        }
        Ok(Self {
            images,
            placeholder,
            filter: fields::filter(fields, Filter::Bicubic)?,
            limits: is_cut.then_some(limits),
            covers: fields.flag_or("use_covering_area_grid", true)?,
        })
    }

    /// Returns the rows and columns of the tiles of an image of `size`.
    fn grid(&self, size: [usize; 2]) -> [usize; 2] {
        let side = self.images.image_size;
        match self.limits {
            None => [1, 1],
            Some([_, most]) if self.covers => covering(size, side, most),
            Some(limits) => tiles::nearest_ratio(size, side, limits),
        }
    }
}

/// Returns the rows and columns of the fewest tiles that cover enough of an image of
/// `[height, width]`: HF `get_min_tile_covering_grid`. As in transformers, they are those of the
/// image with rows and columns exchanged.
fn covering([height, width]: [usize; 2], side: usize, most: usize) -> [usize; 2] {
    let mut all: Vec<[usize; 2]> = (1..=most)
        .flat_map(|rows| (1..=most).map(move |columns| [rows, columns]))
        .filter(|[rows, columns]| rows * columns <= most)
        .collect();
    all.sort_by_key(|[rows, columns]| rows * columns);
    // The last part of an axis has what the others leave.
    let part = |all: usize, count: usize, at: usize| {
        let usual = all / count;
        if at + 1 == count { all - at * usual } else { usual }
    };
    let shown = |[rows, columns]: [usize; 2]| {
        let of_tile = |at: usize| {
            let sides = [part(height, rows, at / columns), part(width, columns, at % columns)];
            let [short, long] = [sides[0].min(sides[1]), sides[0].max(sides[1])];
            match long > side {
                true => short as f64 / long as f64 * side as f64 * side as f64,
                false => (short * long) as f64,
            }
        };
        (0..rows * columns).map(of_tile).sum::<f64>() / (height * width) as f64
    };
    let (mut best, mut largest) = ([1, 1], f64::NEG_INFINITY);
    for grid in all {
        let share = shown(grid);
        let is_larger = share > largest;
        // Fewer tiles come first. Among as many, the largest share counts.
        let is_as_small = grid[0] * grid[1] == best[0] * best[1];
        if is_larger && (largest <= COVERED || is_as_small) {
            (best, largest) = (grid, share);
        }
    }
    [best[1], best[0]]
}

impl FamilyProcessor for Ovis2 {
    fn modalities(&self) -> &[Modality] {
        &[Modality::Image]
    }

    fn max_item_embeds(&self) -> usize {
        let most = self.limits.map_or(1, |[_, most]| most);
        OvisImages::num_embeds(self.images.squares, [1, most])
    }

    fn placeholder(&self, _modality: Modality) -> &str {
        IMAGE
    }

    fn placeholder_tokens(&self, _modality: Modality) -> &[TokenId] {
        &self.placeholder
    }

    fn tokens(&self, media: &ProcessedMedia) -> Vec<TokenId> {
        // An image without tiles has no grid.
        let grid = tiles::grid(media).map(|count| count.max(1));
        let mut tokens = Vec::with_capacity(media.num_embeds);
        for token in OvisImages::tokens(grid) {
            match token {
                OvisToken::Mark(mark) => tokens.push(self.images.marks[mark]),
                OvisToken::Image => {
                    let squares = self.images.squares;
                    tokens.extend(std::iter::repeat_n(self.images.placeholder, squares));
                }
            }
        }
        tokens
    }

    fn is_placeholder(&self, token: TokenId) -> bool {
        token == self.images.placeholder || self.images.marks.contains(&token)
    }

    fn image(
        &self,
        image: &RgbImage,
        _kwargs: &Map<String, Value>,
    ) -> Result<ProcessedMedia, MediaError> {
        let (pixels, side) = (Pixels::of(image), self.images.image_size);
        let grid = self.grid([pixels.height, pixels.width]);
        let num_embeds = OvisImages::num_embeds(self.images.squares, grid);
        let whole = pixels.clone().resized(self.filter, [side; 2]);
        if grid == [1, 1] {
            return Ok(item(vec![whole], num_embeds, None));
        }
        let large = pixels.resized(self.filter, grid.map(|count| count * side));
        let all = std::iter::once(whole).chain(tiles::cut(&large, grid, side)).collect();
        Ok(tiles::with_grid(item(all, num_embeds, None), grid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers come from HF `get_min_tile_covering_grid`, and are exchanged.
    #[test]
    fn tiles_cover_an_image() {
        for (size, most, expected) in CASES {
            assert_eq!(covering(*size, 42, *most), *expected, "{size:?} {most}");
        }
    }

    const CASES: &[([usize; 2], usize, [usize; 2])] = &[
        ([56, 56], 4, [2, 2]),
        ([61, 83], 4, [2, 2]),
        ([40, 197], 9, [5, 1]),
        ([5, 7], 4, [1, 1]),
        ([120, 30], 9, [1, 3]),
        ([200, 100], 9, [2, 4]),
        ([300, 311], 6, [3, 2]),
        ([1, 500], 12, [12, 1]),
        ([90, 40], 3, [1, 3]),
    ];
}
