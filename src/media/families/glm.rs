//! Images of GLM-4.1V and its successors: any size, in whole squares of patches (HF
//! `Glm4vImageProcessor`, `Glm4vProcessor`). Videos are not served.

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
pub(super) struct Glm {
    image_token: [TokenId; 1],
    /// Pixels on a side of a square, which is one embedding.
    side: usize,
    /// The frames that one patch spans. An image counts as so many.
    frames: usize,
    /// The least and the most pixels of an image, with all of its frames.
    limits: [usize; 2],
    filter: Filter,
    resizes: bool,
}

impl Glm {
    /// Reads the processor of a model whose `config.json` has the fields `outer`.
    pub(super) fn read(outer: &Fields, processor: &ProcessorConfig) -> Result<Self, ConfigError> {
        let fields = &processor.image;
        let size = |field: &str, default: usize| {
            Ok::<usize, ConfigError>(fields.size(field)?.unwrap_or(default))
        };
        let token = outer.count("image_token_id")?.unwrap_or(151_343);
        let token = u32::try_from(token).ok();
        Ok(Self {
            image_token: [token.ok_or_else(|| outer.invalid("image_token_id", "a token id"))?],
            side: size("patch_size", 14)? * size("merge_size", 2)?,
            frames: size("temporal_patch_size", 2)?,
            limits: limits(fields, [112 * 112, 28 * 28 * 15_000])?,
            filter: fields::filter(fields, Filter::Bicubic)?,
            resizes: fields.flag_or("do_resize", true)?,
        })
    }
}

impl FamilyProcessor for Glm {
    fn modalities(&self) -> &[Modality] {
        &[Modality::Image]
    }

    fn max_item_embeds(&self) -> usize {
        // An image of fewer pixels than the least grows to whole squares.
        let most = self.limits[1].max(4 * self.limits[0]) / self.frames;
        (most / (self.side * self.side)).max(sizes::RATIO_MAX)
    }

    fn placeholder(&self, _: Modality) -> &str {
        "<|begin_of_image|><|image|><|end_of_image|>"
    }

    fn placeholder_tokens(&self, modality: Modality) -> &[TokenId] {
        match modality {
            Modality::Image => &self.image_token,
            _ => &[],
        }
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
        let frames = [self.frames, self.side];
        let size = match self.resizes {
            false => before,
            true => sizes::in_volumes(self.frames, before, frames, limits).ok_or_else(|| {
                invalid(&format!("one side is more than {} times the other", sizes::RATIO_MAX))
            })?,
        };
        if size.iter().any(|length| *length == 0 || length % self.side != 0) {
            return Err(invalid(&format!("its sides are no multiples of {} pixels", self.side)));
        }
        let [rows, columns] = size.map(|length| length / self.side);
        let grid = [1, rows as u32, columns as u32];
        Ok(item(vec![pixels.resized(self.filter, size)], rows * columns, Some(grid)))
    }
}
