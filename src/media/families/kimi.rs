//! Images of Kimi-VL and Kimi K2.5: any size up to a number of patches, with black pixels below and
//! on the right to whole squares. Pixels are those of Pillow, as in the authors' code and in vLLM.
//! With the fields of HF `Kimi_K25ImageProcessor` they are those of that class.

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
use super::{fields, item};
use crate::media::processor::FamilyProcessor;
use crate::model::ConfigError;
use crate::model::config::Fields;
use crate::model::vision::{MoonImages, ProcessorConfig, VisionFamily};

/// The most patches on a side of an image, by default.
const SIDE: usize = 512;

/// The processor of one model.
#[derive(Debug)]
pub(super) struct Kimi {
    image_token: [TokenId; 1],
    placeholder: &'static str,
    sizes: Sizes,
    filter: Filter,
}

/// The sizes of images.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    /// Pixels on a side of a patch.
    patch: usize,
    /// Patches on a side of a square, which is one embedding.
    merge: usize,
    /// The most patches of an image, before pixels are added.
    most: usize,
    /// The most patches on a side.
    side: usize,
    /// Whether an image with a longer side shrinks. If not, it is refused.
    shrinks_sides: bool,
}

impl Sizes {
    /// Returns the size of an image of `[height, width]` before pixels are added, if it has one.
    fn target(self, size: [usize; 2]) -> Option<[usize; 2]> {
        let patches = size.map(|length| length / self.patch);
        if !self.shrinks_sides {
            let count = patches[0] * patches[1];
            let scale = match count > self.most {
                true => (self.most as f64 / count as f64).sqrt(),
                false => 1.0,
            };
            let target = size.map(|length| (length as f64 * scale) as usize);
            let fits = |length: usize| (1..self.side).contains(&(length / self.patch));
            return self.padded(target).into_iter().all(fits).then_some(target);
        }
        let longest = self.side * self.patch;
        let count: f64 = patches.iter().map(|count| (*count).max(1) as f64).product();
        let by_side = size.map(|length| longest as f64 / length as f64);
        let by_count = (self.most as f64 / count).sqrt();
        let scale = by_side.into_iter().fold(by_count.min(1.0), f64::min);
        Some(size.map(|length| ((length as f64 * scale) as usize).clamp(1, longest)))
    }

    /// Returns the size in whole squares.
    fn padded(self, size: [usize; 2]) -> [usize; 2] {
        let square = self.patch * self.merge;
        size.map(|length| length.next_multiple_of(square))
    }

    /// Returns the embeddings of an image of this size.
    fn num_embeds(self, size: [usize; 2]) -> usize {
        size.map(|length| length.div_ceil(self.patch * self.merge)).iter().product()
    }

    /// Returns the most embeddings of an image. Rounding adds up to a patch on each side before it
    /// shrinks, and up to a square after that.
    fn max_embeds(self) -> usize {
        let around = self.side + self.most.div_ceil(self.side) + 1;
        let square = self.merge * self.merge;
        (self.most + around + self.merge * (around + 1) + square) / square
    }
}

impl Kimi {
    /// Reads the processor of a model whose `config.json` has the fields `outer`.
    pub(super) fn read(
        family: VisionFamily,
        outer: &Fields,
        processor: &ProcessorConfig,
    ) -> Result<Self, ConfigError> {
        const PATCH: &str = "patch_size";
        const FIXED: &str = "fixed_output_tokens";
        const PADS: &str = "pad_input";
        let images = MoonImages::read(family, outer)?;
        let (fields, is_of_authors) = MoonImages::processor(&processor.image)?;
        let size = |field: &str, default: usize| {
            Ok::<usize, ConfigError>(fields.size(field)?.unwrap_or(default))
        };
        if size(PATCH, 14)? != images.patch {
            return Err(fields.invalid(PATCH, &format!("{}, that of the tower", images.patch)));
        }
        if MoonImages::merge_of(&fields)? != images.merge {
            let expected = format!("{}, that of the tower", images.merge);
            let field = if fields.has("merge_size") { "merge_size" } else { "merge_kernel_size" };
            return Err(fields.invalid(field, &expected));
        }
        if fields.value(FIXED).is_some() {
            return Err(fields.invalid(FIXED, "null"));
        }
        let is_k25 = family == VisionFamily::KimiK25;
        let (most, side, filter) = match (is_k25, is_of_authors) {
            (false, _) => {
                if !fields.flag_or(PADS, false)? {
                    return Err(fields.invalid(PADS, "true, as vLLM counts tokens"));
                }
                (size("in_token_limit", 4_096)?, SIDE, Filter::BicubicOfPillow)
            }
            (true, true) => {
                let side = size("patch_limit_on_one_side", SIDE)?;
                (size("in_patch_limit", 16_384)?, side, Filter::BicubicOfPillow)
            }
            (true, false) => {
                fields::require_resize(&fields)?;
                let filter = fields::filter(&fields, Filter::Bicubic)?;
                (size("max_patches", 16_384)?, longest_side(&fields)?, filter)
            }
        };
        let MoonImages { placeholder, patch, merge } = images;
        Ok(Self {
            image_token: [placeholder],
            placeholder: match is_k25 {
                true => "<|media_begin|>image<|media_content|><|media_pad|><|media_end|>",
                false => "<|media_start|>image<|media_content|><|media_pad|><|media_end|>",
            },
            sizes: Sizes { patch, merge, most, side, shrinks_sides: is_k25 },
            filter,
        })
    }
}

/// Returns the most patches on a side by the field `size`.
fn longest_side(fields: &Fields) -> Result<usize, ConfigError> {
    const SIZE: &str = "size";
    let Some(size) = fields.nested(SIZE)? else { return Ok(SIDE) };
    match (size.size("max_height")?, size.size("max_width")?) {
        (Some(height), Some(width)) if height == width => Ok(height),
        _ => Err(fields.invalid(SIZE, "an object with equal max_height and max_width")),
    }
}

impl FamilyProcessor for Kimi {
    fn modalities(&self) -> &[Modality] {
        &[Modality::Image]
    }

    fn max_item_embeds(&self) -> usize {
        self.sizes.max_embeds()
    }

    fn placeholder(&self, _modality: Modality) -> &str {
        self.placeholder
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
        let pixels = Pixels::of(image);
        let target = self.sizes.target([pixels.height, pixels.width]);
        let target = target.ok_or_else(|| {
            let (side, most) = (self.sizes.side - 1, self.sizes.most);
            invalid(&format!("of {most} patches, more than {side} would be on one side"))
        })?;
        let (num_embeds, most) = (self.sizes.num_embeds(target), self.max_item_embeds());
        if num_embeds > most {
            let reason = format!("it would have {num_embeds} embeddings, more than {most}");
            return Err(invalid(&reason));
        }
        let pixels = pixels.resized(self.filter, target);
        let padded = pixels.part([0, 0], self.sizes.padded(target), [0; 3]);
        Ok(item(vec![padded], num_embeds, None))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: Sizes =
        Sizes { patch: 14, merge: 2, most: 4_096, side: 512, shrinks_sides: false };

    #[test]
    fn large_images_shrink_and_long_ones_do_not() {
        assert_eq!(SIZES.target([100, 900]), Some([100, 900]));
        assert_eq!(SIZES.padded([100, 900]), [112, 924]);
        assert_eq!(SIZES.num_embeds([100, 900]), 4 * 33);
        // 214 x 142 patches.
        assert_eq!(SIZES.target([3_000, 2_000]), Some([1_101, 734]));
        assert_eq!(SIZES.target([10, 510 * 14]), Some([10, 510 * 14]));
        assert_eq!(SIZES.target([10, 510 * 14 + 1]), None);
        let k25 = Sizes { most: 16_384, shrinks_sides: true, ..SIZES };
        assert_eq!(k25.target([10, 510 * 14 + 1]), Some([10, 510 * 14 + 1]));
        assert_eq!(k25.target([1, 14_336]), Some([1, 7_168]));
    }

    #[test]
    fn no_image_has_more_embeddings_than_the_most() {
        for most in [4, 100, 4_096, 16_384] {
            let sizes = Sizes { most, shrinks_sides: true, ..SIZES };
            for height in [1, 13, 28, 100, 777, 4_000, 20_000] {
                for width in [1, 15, 29, 450, 1_500, 9_999, 40_000] {
                    let target = sizes.target([height, width]).unwrap();
                    let found = sizes.num_embeds(target);
                    assert!(found <= sizes.max_embeds(), "{most}: {height} x {width}: {found}");
                }
            }
        }
    }
}
