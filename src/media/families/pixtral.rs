//! Images of Pixtral and Mistral 3: at most a size, in whole squares of patches, a line a row (HF
//! `PixtralImageProcessor`, `PixtralProcessor`). Those of LightOnOCR have neither marks of rows nor
//! always whole squares (HF `LightOnOcrProcessor`).

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
use super::llava::invalid;
use super::resize::{Filter, Pixels};
use super::{item, token_of};
use crate::media::processor::FamilyProcessor;
use crate::model::ConfigError;
use crate::model::config::Fields;
use crate::model::vision::{PixtralImages, ProcessorConfig, VisionFamily};

/// The processor of one model.
#[derive(Debug)]
pub(super) struct Pixtral {
    image_token: [TokenId; 1],
    /// The token after each row but the last, and that after the last, if rows have some.
    marks: Option<[TokenId; 2]>,
    placeholder: String,
    /// Pixels on a side of a square, which is one embedding.
    side: usize,
    /// Height and width of an image are multiples of these pixels.
    step: usize,
    /// The longest height and width.
    most: [usize; 2],
    filter: Filter,
}

impl Pixtral {
    /// Reads the processor of a model whose `config.json` has the fields `outer`.
    pub(super) fn read(
        family: VisionFamily,
        outer: &Fields,
        processor: &ProcessorConfig,
        encode: &dyn Fn(&str) -> Vec<TokenId>,
    ) -> Result<Self, ConfigError> {
        const SIZE: &str = "size";
        let images = PixtralImages::read(family, outer)?;
        let fields = &processor.image;
        fields::require_resize(fields)?;
        let size = fields.nested(SIZE)?.unwrap_or_else(|| Fields::empty_in(fields));
        let longest = size.size("longest_edge")?;
        let exact = (size.size("height")?, size.size("width")?);
        let most = match (longest, exact) {
            (Some(longest), _) => [longest; 2],
            (None, (Some(height), Some(width))) => [height, width],
            (None, _) => [1_024; 2],
        };
        if most[0].min(most[1]) < images.side {
            let expected = format!("at least {} pixels, a square of patches", images.side);
            return Err(fields.invalid(SIZE, &expected));
        }
        let whole = &processor.whole;
        let (marks, step, placeholder) = match family {
            VisionFamily::LightOnOcr => {
                // With the config of Mistral 3, it has the processor of Pixtral, too.
                let is_of_pixtral = outer.text("model_type")? == Some("mistral3");
                let step = if is_of_pixtral { images.side } else { step(fields)? };
                (None, step, "<|image_pad|>")
            }
            _ => {
                let row = token_of(whole, "image_break_token", "[IMG_BREAK]", encode)?;
                let end = token_of(whole, "image_end_token", "[IMG_END]", encode)?;
                (Some([row, end]), images.side, "[IMG]")
            }
        };
        Ok(Self {
            image_token: [images.placeholder],
            marks,
            placeholder: whole.text("image_token")?.unwrap_or(placeholder).to_owned(),
            side: images.side,
            step,
            most,
            filter: fields::filter(fields, Filter::Bicubic)?,
        })
    }

    /// Returns the size of an image in whole steps.
    fn target(&self, [height, width]: [usize; 2]) -> [usize; 2] {
        let ratios = [height as f64 / self.most[0] as f64, width as f64 / self.most[1] as f64];
        let ratio = ratios[0].max(ratios[1]);
        [height, width].map(|side| {
            let side = if ratio > 1.0 { (side as f64 / ratio) as usize } else { side };
            side.max(1).div_ceil(self.step) * self.step
        })
    }

    /// Returns the number of whole squares of an image.
    fn num_embeds(&self, size: [usize; 2]) -> usize {
        size.iter().map(|side| side / self.side).product()
    }
}

/// Reads the sides of patches, which the processor of LightOnOCR leaves to that of its images: a
/// number, or an equal height and width.
fn step(fields: &Fields) -> Result<usize, ConfigError> {
    const FIELD: &str = "patch_size";
    let square = Size::Exact { height: 16, width: 16 };
    match fields::size(fields, FIELD, true, square)? {
        Size::Exact { height, width } if height == width => Ok(height),
        _ => Err(fields.invalid(FIELD, "a number of pixels, or an equal height and width")),
    }
}

impl FamilyProcessor for Pixtral {
    fn modalities(&self) -> &[Modality] {
        &[Modality::Image]
    }

    fn max_item_embeds(&self) -> usize {
        self.num_embeds(self.most.map(|most| most.div_ceil(self.step) * self.step))
    }

    fn placeholder(&self, _modality: Modality) -> &str {
        &self.placeholder
    }

    fn placeholder_tokens(&self, _modality: Modality) -> &[TokenId] {
        &self.image_token
    }

    fn tokens(&self, media: &ProcessedMedia) -> Vec<TokenId> {
        let Some([row, end]) = self.marks else {
            return vec![self.image_token[0]; media.num_embeds];
        };
        let shape = media.tensors.first().map(|tensor| &*tensor.shape);
        let columns = match shape {
            Some([_, _, width, 3]) => (width / self.side).max(1),
            _ => media.num_embeds.max(1),
        };
        let mut tokens = Vec::new();
        for _ in 0..media.num_embeds / columns {
            tokens.extend(std::iter::repeat_n(self.image_token[0], columns));
            tokens.push(row);
        }
        if let Some(last) = tokens.last_mut() {
            *last = end;
        }
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
        let size = self.target([pixels.height, pixels.width]);
        let num_embeds = self.num_embeds(size);
        if num_embeds == 0 {
            let [height, width] = size;
            let reason = format!("{height} x {width} pixels have no square of {}", self.side);
            return Err(invalid(&reason));
        }
        Ok(item(vec![pixels.resized(self.filter, size)], num_embeds, None))
    }
}
