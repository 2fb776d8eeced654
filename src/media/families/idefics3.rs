//! Images of Idefics 3 and SmolVLM: tiles of one size, and the whole image in that size (HF
//! `Idefics3ImageProcessor`, `Idefics3Processor`). UltraVBERT has a limit of tiles beside them (HF
//! `UltraVBertImageProcessor`).

use image::RgbImage;
use playhouse_actors::{
    logic::request::{
        ids::TokenId,
        media::{Modality, ProcessedMedia},
    },
    ports::MediaError,
};
use serde_json::{Map, Value};

use super::resize::{Filter, Pixels};
use super::{fields, item, tiles};
use crate::media::processor::FamilyProcessor;
use crate::model::ConfigError;
use crate::model::config::{Fields, INNER_TYPE};
use crate::model::vision::{ProcessorConfig, TileImages, VisionFamily};

/// The longest side after the first resize.
const LONGEST: usize = 4_096;

/// The class of UltraVBERT's processor, and its most tiles by default.
const ULTRA: &str = "UltraVBertImageProcessor";
const ULTRA_TILES: usize = 27;

/// The processor of one model.
#[derive(Debug)]
pub(super) struct Idefics3 {
    image_token: [TokenId; 1],
    /// The tokens around images.
    fake: Vec<TokenId>,
    global: Vec<TokenId>,
    /// Those of each place of a tile, by rows of [`Idefics3::most_tiles`].
    places: Vec<Vec<TokenId>>,
    line: Vec<TokenId>,
    /// The end of the last row, and the line before the whole image.
    lines: Vec<TokenId>,
    num_embeds: usize,
    /// Pixels on a side of a tile.
    side: usize,
    longest: usize,
    /// The most tiles of an image, beside the whole image. A larger image becomes smaller.
    max_tiles: Option<usize>,
    splits: bool,
    filter: Filter,
}

impl Idefics3 {
    /// Reads the processor of a model whose `config.json` has the fields `outer`.
    pub(super) fn read(
        family: VisionFamily,
        outer: &Fields,
        processor: &ProcessorConfig,
        encode: &dyn Fn(&str) -> Vec<TokenId>,
    ) -> Result<Self, ConfigError> {
        const TILE: &str = "max_image_size";
        let images = TileImages::read(family, outer)?;
        let fields = &processor.image;
        fields::require_resize(fields)?;
        let edge = |field: &str, default: usize| {
            let size = fields.nested(field)?.unwrap_or_else(|| Fields::empty_in(fields));
            Ok::<_, ConfigError>(size.size("longest_edge")?.unwrap_or(default))
        };
        let is_ultra = fields::class(fields)?.as_deref() == Some(ULTRA);
        let [side, longest] = if is_ultra { [512, 3_072] } else { [364, 4 * 364] };
        let (side, longest) = (edge(TILE, side)?, edge("size", longest)?);
        if side != images.image_size {
            let expected = format!("longest_edge {}, the tower's image_size", images.image_size);
            return Err(fields.invalid(TILE, &expected));
        }
        let most = most_tiles(longest, side);
        let tag = |at: usize| format!("<row_{}_col_{}>", at / most + 1, at % most + 1);
        Ok(Self {
            image_token: [images.placeholder],
            fake: encode("<fake_token_around_image>"),
            global: encode("<global-img>"),
            places: (0..most * most).map(|at| encode(&tag(at))).collect(),
            line: encode("\n"),
            lines: encode("\n\n"),
            num_embeds: images.num_embeds,
            side,
            longest,
            max_tiles: match is_ultra || outer.text(INNER_TYPE)? == Some("ultravbert") {
                true => fields.size("max_image_tiles")?.or(is_ultra.then_some(ULTRA_TILES)),
                // HF `Idefics3ImageProcessor` has no such field.
                false => None,
            },
            splits: fields.flag_or("do_image_splitting", true)?,
            filter: fields::filter(fields, Filter::Lanczos)?,
        })
    }

    /// Returns the most tiles on a side of an image.
    fn most_tiles(&self) -> usize {
        most_tiles(self.longest, self.side)
    }

    /// Returns the longest side of an image of the size `[height, width]`, which then has at most
    /// the most tiles: HF `get_capped_longest_edge`.
    fn longest_of(&self, size: [usize; 2]) -> usize {
        let Some(most) = self.max_tiles.filter(|_| self.splits) else { return self.longest };
        let num_tiles = |longest: usize| {
            let [_, whole] = self.sizes(size, longest);
            whole.into_iter().map(|side| side / self.side).product::<usize>()
        };
        let mut longest = self.longest;
        while longest > self.side && num_tiles(longest) > most {
            longest -= self.side;
        }
        longest
    }

    /// Returns the size of an image whose longer side is `longest`, and then of whole tiles.
    fn sizes(&self, [height, width]: [usize; 2], longest: usize) -> [[usize; 2]; 2] {
        let is_wide = width >= height;
        let ratio = width as f64 / height as f64;
        let shorter = |longer: usize| match is_wide {
            true => (longer as f64 / ratio) as usize,
            false => (longer as f64 * ratio) as usize,
        };
        let oriented = |is_wide: bool, longer: usize, shorter: usize| match is_wide {
            true => [shorter, longer],
            false => [longer, shorter],
        };
        let even = shorter(longest).next_multiple_of(2).max(1);
        let first = match longest > LONGEST {
            true => {
                let ratio = longest as f64 / even as f64;
                oriented(is_wide, LONGEST, ((LONGEST as f64 / ratio) as usize).max(1))
            }
            false => oriented(is_wide, longest, even),
        };
        let [height, width] = first;
        // An odd longest side may have become the shorter one.
        let is_wide = width >= height;
        let long = if is_wide { width } else { height };
        let ratio = width as f64 / height as f64;
        let longer = long.next_multiple_of(self.side);
        let shorter = match is_wide {
            true => longer as f64 / ratio,
            false => longer as f64 * ratio,
        } as usize;
        let shorter = shorter.max(1).next_multiple_of(self.side);
        [first, oriented(is_wide, longer, shorter)]
    }

    /// Appends the placeholders of one image.
    fn images(&self, tokens: &mut Vec<TokenId>) {
        tokens.extend(std::iter::repeat_n(self.image_token[0], self.num_embeds));
    }
}

/// Returns the most tiles of `side` pixels on a side of an image. The shorter side becomes even,
/// and so may become the longer one.
fn most_tiles(longest: usize, side: usize) -> usize {
    tiles::on_a_side(longest.min(LONGEST).next_multiple_of(2), side)
}

impl FamilyProcessor for Idefics3 {
    fn modalities(&self) -> &[Modality] {
        &[Modality::Image]
    }

    fn max_item_embeds(&self) -> usize {
        let all = if self.splits { self.most_tiles().pow(2) } else { 0 };
        // An image that is no longer than a tile may still have two on a side, if that is odd.
        let least = most_tiles(self.side, self.side).pow(2);
        let tiles = self.max_tiles.map_or(all, |most| most.max(least).min(all));
        (tiles + 1) * self.num_embeds
    }

    fn placeholder(&self, _modality: Modality) -> &str {
        "<image>"
    }

    fn placeholder_tokens(&self, _modality: Modality) -> &[TokenId] {
        &self.image_token
    }

    fn tokens(&self, media: &ProcessedMedia) -> Vec<TokenId> {
        let (mut tokens, most) = (Vec::new(), self.most_tiles());
        let [rows, columns] = tiles::grid(media);
        for row in 0..rows {
            for column in 0..columns {
                tokens.extend(&self.fake);
                tokens.extend(self.places.get(row * most + column).into_iter().flatten());
                self.images(&mut tokens);
            }
            tokens.extend(if row + 1 == rows { &self.lines } else { &self.line });
        }
        tokens.extend(self.fake.iter().chain(&self.global));
        self.images(&mut tokens);
        tokens.extend(&self.fake);
        tokens
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
        let size = [pixels.height, pixels.width];
        let [first, whole] = self.sizes(size, self.longest_of(size));
        let (pixels, tile) = (pixels.resized(self.filter, first), [self.side; 2]);
        if !self.splits {
            return Ok(item(vec![pixels.resized(self.filter, tile)], self.num_embeds, None));
        }
        let pixels = pixels.resized(self.filter, whole);
        let [rows, columns] = whole.map(|side| side / self.side);
        let mut all = Vec::new();
        if rows * columns > 1 {
            all = tiles::cut(&pixels, [rows, columns], self.side);
        }
        all.push(pixels.resized(self.filter, tile));
        let num_embeds = all.len() * self.num_embeds;
        let grid = if rows * columns > 1 { [rows, columns] } else { [0, 0] };
        Ok(tiles::with_grid(item(all, num_embeds, None), grid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn processor(side: usize, longest: usize, max_tiles: Option<usize>) -> Idefics3 {
        Idefics3 {
            image_token: [0],
            fake: Vec::new(),
            global: Vec::new(),
            places: Vec::new(),
            line: Vec::new(),
            lines: Vec::new(),
            num_embeds: 1,
            side,
            longest,
            max_tiles,
            splits: true,
            filter: Filter::Lanczos,
        }
    }

    /// The sizes come from HF `Idefics3ImageProcessor`.
    #[test]
    fn an_odd_longest_side_may_become_the_shorter_one() {
        let mut processor = processor(24, 55, None);
        assert_eq!(processor.sizes([56, 56], 55), [[56, 55], [72, 72]]);
        assert_eq!(processor.sizes([40, 197], 55), [[12, 55], [24, 72]]);
        assert_eq!(processor.sizes([120, 30], 55), [[55, 14], [72, 24]]);
        processor.side = 55;
        assert_eq!(processor.sizes([56, 56], 55), [[56, 55], [110, 110]]);
        assert_eq!(processor.most_tiles(), 2);
    }

    /// The rows and columns come from HF `UltraVBertImageProcessor`.
    #[test]
    fn an_image_has_at_most_the_most_tiles() {
        let capped = processor(512, 3_072, Some(ULTRA_TILES));
        for ([height, width], grid) in [
            ([2_200, 1_700], [5, 4]),
            ([1_700, 2_200], [4, 5]),
            ([2_000, 2_000], [5, 5]),
            ([1_000, 4_000], [2, 6]),
            ([4_000, 1_000], [6, 2]),
            ([200, 300], [4, 6]),
            ([2_400, 3_000], [4, 5]),
        ] {
            let size = [height, width];
            let [_, whole] = capped.sizes(size, capped.longest_of(size));
            assert_eq!(whole.map(|side| side / 512), grid, "{size:?}");
        }
        assert_eq!(capped.max_item_embeds(), ULTRA_TILES + 1);
        assert_eq!(processor(512, 3_072, None).max_item_embeds(), 37);
        assert_eq!(processor(512, 3_072, None).longest_of([2_000, 2_000]), 3_072);
        let whole = Idefics3 { splits: false, ..processor(512, 3_072, Some(ULTRA_TILES)) };
        assert_eq!((whole.longest_of([2_000, 2_000]), whole.max_item_embeds()), (3_072, 1));
        // A side of 3 pixels becomes even, and so two tiles.
        let odd = processor(3, 9, Some(1));
        assert_eq!(odd.max_item_embeds(), 5);
    }
}
