//! Images of Qwen2-VL, Qwen2.5-VL and Qwen3-VL: any size, in whole squares of patches (HF
//! `Qwen2VLImageProcessor`, `Qwen2VLProcessor`).

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
use super::resize::{Filter, Pixels};
use super::{fields, item, sizes};
use crate::media::processor::FamilyProcessor;
use crate::model::ConfigError;
use crate::model::config::Fields;
use crate::model::vision::{ProcessorConfig, VisionFamily};

/// The processor of one model.
#[derive(Debug)]
pub(super) struct Qwen {
    image_token: [TokenId; 1],
    /// Pixels on a side of a square, which is one embedding.
    side: usize,
    /// The least and the most pixels of an image.
    limits: [usize; 2],
    filter: Filter,
    resizes: bool,
}

impl Qwen {
    /// Reads the processor of a model whose `config.json` has the fields `outer`.
    pub(super) fn read(
        family: VisionFamily,
        outer: &Fields,
        processor: &ProcessorConfig,
    ) -> Result<Self, ConfigError> {
        let fields = &processor.image;
        let default = match family {
            VisionFamily::Qwen3Vl | VisionFamily::Qwen3_5 => 16,
            _ => 14,
        };
        let patch = fields.size("patch_size")?.unwrap_or(default);
        let merge = fields.size("merge_size")?.unwrap_or(2);
        let token = outer.count("image_token_id")?.unwrap_or(151_655);
        let token = u32::try_from(token);
        Ok(Self {
            image_token: [token.map_err(|_| outer.invalid("image_token_id", "a token id"))?],
            side: patch * merge,
            limits: limits(fields)?,
            filter: fields::filter(fields, Filter::Bicubic)?,
            resizes: fields.flag_or("do_resize", true)?,
        })
    }

    /// Returns the limits with the client's settings. They may not exceed the model's.
    fn limits_with(&self, kwargs: &Map<String, Value>) -> Result<[usize; 2], MediaError> {
        let size = kwargs.get("size").and_then(Value::as_object);
        let pixels = |old: &str, new: &str, default: usize| {
            let value = kwargs.get(old).filter(|value| !value.is_null());
            let Some(value) = value.or_else(|| size?.get(new)) else { return Ok(default) };
            let count = value.as_u64().and_then(|count| usize::try_from(count).ok());
            let count = count.filter(|count| (1..=self.limits[1]).contains(count));
            let most = self.limits[1];
            count.ok_or_else(|| {
                let field = if kwargs.contains_key(old) { old } else { new };
                MediaError::Kwargs(format!("`{field}` is {value}; expected 1 to {most} pixels"))
            })
        };
        let most = pixels("max_pixels", "longest_edge", self.limits[1])?;
        let least = pixels("min_pixels", "shortest_edge", self.limits[0])?;
        Ok([least, most])
    }
}

/// Reads the least and the most pixels: `size`, or the older fields `min_pixels` and `max_pixels`.
fn limits(fields: &Fields) -> Result<[usize; 2], ConfigError> {
    let size = fields.nested("size")?.unwrap_or_else(|| Fields::empty_in(fields));
    let pixels = |old: &str, new: &str, default: usize| {
        Ok::<_, ConfigError>(fields.pixels(old)?.or(size.pixels(new)?).unwrap_or(default))
    };
    Ok([
        pixels("min_pixels", "shortest_edge", 56 * 56)?,
        pixels("max_pixels", "longest_edge", 28 * 28 * 1_280)?,
    ])
}

impl FamilyProcessor for Qwen {
    fn modalities(&self) -> &[Modality] {
        &[Modality::Image]
    }

    fn max_item_embeds(&self) -> usize {
        // An image of fewer pixels than the least grows to whole squares.
        let most = self.limits[1].max(4 * self.limits[0]);
        (most / (self.side * self.side)).max(sizes::RATIO_MAX)
    }

    fn placeholder(&self, _modality: Modality) -> &str {
        "<|vision_start|><|image_pad|><|vision_end|>"
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
        let limits = self.limits_with(kwargs)?;
        let pixels = Pixels::of(image);
        let before = [pixels.height, pixels.width];
        let size = match self.resizes {
            false => before,
            true => sizes::in_squares(before, self.side, limits).ok_or_else(|| {
                invalid(&format!("one side is more than {} times the other", sizes::RATIO_MAX))
            })?,
        };
        let [rows, columns] = size.map(|side| side / self.side);
        if size.iter().any(|side| *side == 0 || side % self.side != 0) {
            let side = self.side;
            return Err(invalid(&format!("its sides are no multiples of {side} pixels")));
        }
        let pixels = pixels.resized(self.filter, size);
        let grid = [1, rows as u32, columns as u32];
        Ok(item(vec![pixels], rows * columns, Some(grid)))
    }
}
