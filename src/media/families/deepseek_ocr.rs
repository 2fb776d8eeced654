//! Images of DeepSeek-OCR and DeepSeek-OCR 2 (`DeepseekOCRProcessor` of vLLM, with the pixels of
//! Pillow): a large one is cut into tiles. The whole image follows them in a square with a margin.

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
use super::{item, tiles, token_of};
use crate::media::processor::FamilyProcessor;
use crate::model::ConfigError;
use crate::model::vision::{OcrViews, ProcessorConfig, UNIT_SCALE, VisionFamily};

/// The processor of one model.
#[derive(Debug)]
pub(super) struct DeepseekOcr {
    image_token: [TokenId; 1],
    views: OcrViews,
    /// The colour of the margin.
    margin: [u8; 3],
}

impl DeepseekOcr {
    /// Reads the processor of a model.
    pub(super) fn read(
        family: VisionFamily,
        processor: &ProcessorConfig,
        encode: &dyn Fn(&str) -> Vec<TokenId>,
    ) -> Result<Self, ConfigError> {
        const TOKEN: &str = "image_token";
        let fields = &processor.image;
        if fields.text(TOKEN)?.is_some_and(|text| text != OcrViews::TOKEN) {
            return Err(fields.invalid(TOKEN, OcrViews::TOKEN));
        }
        // The margin has the colour of the means, also where pixels are not normalised.
        let image = fields.with("do_normalize", true.into());
        let scale = ProcessorConfig { image, ..processor.clone() }.scale(UNIT_SCALE)?;
        Ok(Self {
            image_token: [token_of(fields, TOKEN, OcrViews::TOKEN, encode)?],
            views: OcrViews::read(family, fields)?,
            margin: scale.mean.map(|mean| (mean * 255.0) as u8),
        })
    }

    /// Returns the whole image in the middle of a square: Pillow's `ImageOps.pad`.
    fn whole(&self, pixels: Pixels) -> Result<Pixels, MediaError> {
        let base = self.views.base;
        let other = |short: usize, long: usize| {
            (short as f64 / long as f64 * base as f64).round_ties_even() as usize
        };
        let size = match pixels.height < pixels.width {
            true => [other(pixels.height, pixels.width), base],
            false => [base, other(pixels.width, pixels.height)],
        };
        if size.contains(&0) {
            return Err(invalid("one side is much longer than the other"));
        }
        let pixels = pixels.resized(Filter::BicubicOfPillow, size);
        let first = |side: usize| -(((base - side) as f64 * 0.5).round_ties_even() as isize);
        Ok(pixels.part(size.map(first), [base, base], self.margin))
    }
}

impl FamilyProcessor for DeepseekOcr {
    fn modalities(&self) -> &[Modality] {
        &[Modality::Image]
    }

    fn max_item_embeds(&self) -> usize {
        self.views.most_embeds()
    }

    fn placeholder(&self, _modality: Modality) -> &str {
        OcrViews::TOKEN
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
        let OcrViews { tile, most, .. } = self.views;
        let size = [pixels.height, pixels.width];
        let whole = self.whole(pixels.clone())?;
        if size[0].max(size[1]) <= tile {
            return Ok(item(vec![whole], self.views.num_embeds(None), None));
        }
        let grid = tiles::nearest_ratio(size, tile, [OcrViews::LEAST, most]);
        let large = pixels.resized(Filter::BicubicOfPillow, grid.map(|count| count * tile));
        let num_embeds = self.views.num_embeds(Some(grid));
        let mut media = tiles::with_grid(item(vec![whole], num_embeds, None), grid);
        media.tensors.extend(item(tiles::cut(&large, grid, tile), 0, None).tensors);
        Ok(media)
    }
}
