//! Images of Aria: resized so that the longer side has 980 pixels (HF `AriaImageProcessor`,
//! `AriaProcessor`). The encoder fills the last patches with black.

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
use super::{fields, item};
use crate::media::processor::FamilyProcessor;
use crate::model::ConfigError;
use crate::model::config::Fields;
use crate::model::vision::{AriaImages, ProcessorConfig};

/// The processor of one model.
#[derive(Debug)]
pub(super) struct Aria {
    image_token: [TokenId; 1],
    num_embeds: usize,
    /// Pixels on the longer side.
    longest: usize,
    /// The least pixels on the shorter side.
    least: usize,
    filter: Filter,
}

impl Aria {
    /// Reads the processor of a model whose `config.json` has the fields `outer`.
    pub(super) fn read(outer: &Fields, processor: &ProcessorConfig) -> Result<Self, ConfigError> {
        const MOST: &str = "max_image_size";
        const LEAST: &str = "min_image_size";
        const SPLITS: &str = "split_image";
        const COUNTS: &str = "size_conversion";
        let AriaImages { placeholder, longest, num_embeds } = AriaImages::read(outer)?;
        let (fields, whole) = (&processor.image, &processor.whole);
        if fields.size(MOST)?.is_some_and(|most| most != longest) {
            let expected = format!("{longest}, which HF AriaProcessor asks for");
            return Err(fields.invalid(MOST, &expected));
        }
        if fields.flag_or(SPLITS, false)? {
            return Err(fields.invalid(SPLITS, "false"));
        }
        let least = fields.size(LEAST)?.unwrap_or(336);
        if least > longest {
            return Err(fields.invalid(LEAST, &format!("at most {longest}")));
        }
        let counts = whole.nested(COUNTS)?;
        let count = counts.map(|counts| counts.size(&longest.to_string())).transpose()?.flatten();
        if count.is_some_and(|count| count != num_embeds) {
            let expected = format!("{num_embeds} for {longest}, as the model");
            return Err(whole.invalid(COUNTS, &expected));
        }
        let filter = fields::filter(fields, Filter::Bicubic)?;
        Ok(Self { image_token: [placeholder], num_embeds, longest, least, filter })
    }

    /// Returns the size of an image of `[height, width]`.
    fn target(&self, [height, width]: [usize; 2]) -> [usize; 2] {
        let scale = self.longest as f64 / height.max(width) as f64;
        let shorter = |length: usize| ((length as f64 * scale) as usize).max(self.least);
        match width >= height {
            true => [shorter(height), self.longest],
            false => [self.longest, shorter(width)],
        }
    }
}

impl FamilyProcessor for Aria {
    fn modalities(&self) -> &[Modality] {
        &[Modality::Image]
    }

    fn max_item_embeds(&self) -> usize {
        self.num_embeds
    }

    fn placeholder(&self, _modality: Modality) -> &str {
        "<|fim_prefix|><|img|><|fim_suffix|>"
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
        let target = self.target([pixels.height, pixels.width]);
        Ok(item(vec![pixels.resized(self.filter, target)], self.num_embeds, None))
    }
}
