//! Images of Aya Vision and Command A Vision: tiles, and a thumbnail (HF `AyaVisionProcessor` with
//! `GotOcr2ImageProcessor`, `Cohere2VisionProcessor`, `Cohere2VisionImageProcessor`).

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
use super::{item, tiles, token_of};
use crate::media::processor::FamilyProcessor;
use crate::model::ConfigError;
use crate::model::config::Fields;
use crate::model::vision::{ProcessorConfig, TileImages, VisionFamily};

/// The text of the embeddings of tiles.
const PATCH: &str = "<|IMG_PATCH|>";

/// The processor of one model.
#[derive(Debug)]
pub(super) struct Cohere {
    image_token: TokenId,
    placeholder: String,
    placeholder_tokens: Vec<TokenId>,
    start_token: TokenId,
    end_token: TokenId,
    marks: TileMarks,
    /// The embeddings of a tile.
    num_embeds: usize,
    /// Pixels on a side of a tile.
    side: usize,
    /// The least and the most tiles.
    limits: [usize; 2],
    filter: Filter,
}

/// The tokens that tell the tiles of an image apart.
#[derive(Debug)]
enum TileMarks {
    /// A text before each tile with its number, the first one first, and another before the
    /// thumbnail: Aya Vision.
    Before { tiles: Vec<Vec<TokenId>>, thumbnail: Vec<TokenId> },
    /// A token after each tile: Command A Vision.
    After(TokenId),
}

impl Cohere {
    /// Reads the processor of a model whose `config.json` has the fields `outer`.
    pub(super) fn read(
        family: VisionFamily,
        outer: &Fields,
        processor: &ProcessorConfig,
        encode: &dyn Fn(&str) -> Vec<TokenId>,
    ) -> Result<Self, ConfigError> {
        const SIZE: &str = "size";
        let images = TileImages::read(family, outer)?;
        let (fields, whole, side) = (&processor.image, &processor.whole, images.image_size);
        let is_aya = family == VisionFamily::AyaVision;
        fields::require_resize(fields)?;
        let tile = |side: usize| Size::Exact { height: side, width: side };
        let default = if is_aya { 384 } else { 512 };
        if fields::size(fields, SIZE, true, tile(default))? != tile(side) {
            return Err(fields.invalid(SIZE, &format!("{side} x {side}, the tower's image_size")));
        }
        require_embeds(processor, images.num_embeds, is_aya)?;
        let limits = limits(fields, ["min_patches", "max_patches"], 12)?;
        // HF `AyaVisionProcessor` asks for tiles whatever its image processor says.
        let is_cut = is_aya || fields.flag_or("crop_to_patches", true)?;
        let limits = if is_cut { limits } else { [1, 1] };
        let text = |field: &str, default: &'static str| {
            Ok::<String, ConfigError>(whole.text(field)?.unwrap_or(default).to_owned())
        };
        let names = match is_aya {
            true => ["start_of_img_token", "end_of_img_token"],
            false => ["boi_token", "eoi_token"],
        };
        let (marks, placeholder) = match is_aya {
            true => (aya_marks(whole, limits[1], encode)?, text("image_token", "<image>")?),
            false => {
                let mark = token_of(whole, "img_line_break_token", "<|IMG_LINE_BREAK|>", encode)?;
                (TileMarks::After(mark), text("image_token", PATCH)?)
            }
        };
        Ok(Self {
            image_token: images.placeholder,
            placeholder_tokens: match is_aya {
                true => encode(&placeholder),
                false => vec![images.placeholder],
            },
            placeholder,
            start_token: token_of(whole, names[0], "<|START_OF_IMG|>", encode)?,
            end_token: token_of(whole, names[1], "<|END_OF_IMG|>", encode)?,
            marks,
            num_embeds: images.num_embeds,
            side,
            limits,
            filter: fields::filter(fields, Filter::Bicubic)?,
        })
    }

    /// Returns the rows and columns of tiles of an image.
    fn grid(&self, size: [usize; 2]) -> [usize; 2] {
        match self.marks {
            TileMarks::Before { .. } => tiles::nearest_ratio(size, self.side, self.limits),
            TileMarks::After(_) => tiles::least_scaled(size, self.side, self.limits[1]),
        }
    }
}

/// Reads the texts that stand before the tiles of Aya Vision, of which there are at most `most`.
fn aya_marks(
    whole: &Fields,
    most: usize,
    encode: &dyn Fn(&str) -> Vec<TokenId>,
) -> Result<TileMarks, ConfigError> {
    let tile = whole.text("tile_token")?.unwrap_or("TILE");
    let thumbnail = whole.text("tile_global_token")?.unwrap_or("TILE_GLOBAL");
    let tiles = (1..=most).map(|index| encode(&format!("{tile}_{index}"))).collect();
    Ok(TileMarks::Before { tiles, thumbnail: encode(thumbnail) })
}

/// Refuses a processor that counts other embeddings of a tile than the tower has.
fn require_embeds(
    processor: &ProcessorConfig,
    num_embeds: usize,
    is_aya: bool,
) -> Result<(), ConfigError> {
    const PATCH_SIZE: &str = "patch_size";
    let whole = &processor.whole;
    let (fields, on_a_side) = match is_aya {
        // A folder without this file has the numbers of the tower.
        true if whole.object().is_empty() => return Ok(()),
        true => {
            let size = |field: &str, default: usize| {
                Ok::<usize, ConfigError>(whole.size(field)?.unwrap_or(default))
            };
            let patch = size(PATCH_SIZE, 28)? * size("downsample_factor", 1)?;
            (whole, size("img_size", 364)? / patch)
        }
        false => (&processor.image, processor.image.size(PATCH_SIZE)?.unwrap_or(16)),
    };
    match on_a_side * on_a_side == num_embeds {
        true => Ok(()),
        false => {
            let expected = format!("that of a tower with {num_embeds} embeddings for a tile");
            Err(fields.invalid(PATCH_SIZE, &expected))
        }
    }
}

impl FamilyProcessor for Cohere {
    fn modalities(&self) -> &[Modality] {
        &[Modality::Image]
    }

    fn max_item_embeds(&self) -> usize {
        let [_, most] = self.limits;
        let thumbnail = usize::from(most > 1);
        (most + thumbnail) * self.num_embeds
    }

    fn placeholder(&self, _modality: Modality) -> &str {
        &self.placeholder
    }

    fn placeholder_tokens(&self, _modality: Modality) -> &[TokenId] {
        &self.placeholder_tokens
    }

    fn tokens(&self, media: &ProcessedMedia) -> Vec<TokenId> {
        let count = media.num_embeds / self.num_embeds.max(1);
        let mut tokens = vec![self.start_token];
        for index in 0..count {
            if let TileMarks::Before { tiles, thumbnail } = &self.marks {
                let own = tiles.get(index).filter(|_| index + 1 < count);
                tokens.extend(own.unwrap_or(thumbnail));
            }
            tokens.extend(std::iter::repeat_n(self.image_token, self.num_embeds));
            if let TileMarks::After(mark) = self.marks {
                tokens.push(mark);
            }
        }
        tokens.push(self.end_token);
        tokens
    }

    fn is_placeholder(&self, token: TokenId) -> bool {
        token == self.image_token
    }

    fn image(
        &self,
        image: &RgbImage,
        _kwargs: &Map<String, Value>,
    ) -> Result<ProcessedMedia, MediaError> {
        let pixels = Pixels::of(image);
        let grid = self.grid([pixels.height, pixels.width]);
        let whole = pixels.clone().resized(self.filter, grid.map(|count| count * self.side));
        let mut all = tiles::cut(&whole, grid, self.side);
        if all.len() > 1 {
            all.push(pixels.resized(self.filter, [self.side; 2]));
        }
        let num_embeds = all.len() * self.num_embeds;
        Ok(item(all, num_embeds, None))
    }
}
