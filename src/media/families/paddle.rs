//! Images of PaddleOCR-VL: any size, in whole squares of patches (HF `PaddleOCRVLImageProcessor`,
//! `PaddleOCRVLProcessor`).

use image::RgbImage;
use playhouse_actors::{
    logic::request::{
        ids::TokenId,
        media::{Modality, ProcessedMedia},
    },
    ports::MediaError,
};
use serde_json::{Map, Value};

use super::llava::invalid;
use super::qwen::{limits, limits_with};
use super::resize::{Filter, Pixels};
use super::{fields, item, sizes};
use crate::media::processor::FamilyProcessor;
use crate::model::ConfigError;
use crate::model::config::Fields;
use crate::model::vision::ProcessorConfig;

/// The processor of one model.
#[derive(Debug)]
pub(super) struct Paddle {
    image_token: [TokenId; 1],
    /// Pixels on a side of a square, which is one embedding.
    side: usize,
    /// The least and the most pixels of an image.
    limits: [usize; 2],
    filter: Filter,
    resizes: bool,
}

impl Paddle {
    /// Reads the processor of a model whose `config.json` has the fields `outer`.
    pub(super) fn read(outer: &Fields, processor: &ProcessorConfig) -> Result<Self, ConfigError> {
        const TOKEN: &str = "image_token_id";
        const FRAMES: &str = "temporal_patch_size";
        let fields = &processor.image;
        let token = outer.count(TOKEN)?.unwrap_or(100_295);
        let token = u32::try_from(token).map_err(|_| outer.invalid(TOKEN, "a token id"))?;
        if fields.size(FRAMES)?.is_some_and(|frames| frames != 1) {
            return Err(fields.invalid(FRAMES, "1: the tower has patches of one frame"));
        }
        let patch = fields.size("patch_size")?.unwrap_or(14);
        Ok(Self {
            image_token: [token],
            side: patch * fields.size("merge_size")?.unwrap_or(2),
            limits: limits(fields, [384 * 384, 1_536 * 1_536])?,
            filter: fields::filter(fields, Filter::Bicubic)?,
            resizes: fields.flag_or("do_resize", true)?,
        })
    }

    /// Returns the size of an image in whole squares: HF `smart_resize` of PaddleOCR-VL. A side
    /// that is shorter than a square grows first. `None` if one side is too long for the other.
    fn target(&self, [height, width]: [usize; 2], limits: [usize; 2]) -> Option<[usize; 2]> {
        let grown = |side: usize, short: usize| {
            (side as f64 * self.side as f64 / short as f64).round_ties_even() as usize
        };
        let [mut height, mut width] = [height.max(1), width.max(1)];
        if height < self.side {
            (height, width) = (self.side, grown(width, height));
        }
        if width < self.side {
            (height, width) = (grown(height, width.max(1)), self.side);
        }
        sizes::in_squares([height, width], self.side, limits)
    }
}

impl FamilyProcessor for Paddle {
    fn modalities(&self) -> &[Modality] {
        &[Modality::Image]
    }

    fn max_item_embeds(&self) -> usize {
        // An image of fewer pixels than the least grows to whole squares.
        let most = self.limits[1].max(4 * self.limits[0]);
        (most / (self.side * self.side)).max(sizes::RATIO_MAX)
    }

    fn placeholder(&self, _modality: Modality) -> &str {
        "<|IMAGE_START|><|IMAGE_PLACEHOLDER|><|IMAGE_END|>"
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
        kwargs: &Map<String, Value>,
    ) -> Result<ProcessedMedia, MediaError> {
        let limits = limits_with(self.limits, kwargs)?;
        let pixels = Pixels::of(image);
        let before = [pixels.height, pixels.width];
        let size = match self.resizes {
            false => before,
            true => self.target(before, limits).ok_or_else(|| {
                invalid(&format!("one side is more than {} times the other", sizes::RATIO_MAX))
            })?,
        };
        if size.iter().any(|side| *side == 0 || side % self.side != 0) {
            return Err(invalid(&format!("its sides are no multiples of {} pixels", self.side)));
        }
        let [rows, columns] = size.map(|length| length / self.side);
        let grid = [1, rows as u32, columns as u32];
        Ok(item(vec![pixels.resized(self.filter, size)], rows * columns, Some(grid)))
    }
}
