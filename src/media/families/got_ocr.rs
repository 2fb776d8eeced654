//! Images of GOT-OCR 2: one size (HF `GotOcr2ImageProcessor`, `GotOcr2Processor`). The class of the
//! processor cuts images into tiles only where its caller asks for it.

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
use super::item;
use super::resize::{Filter, Pixels};
use crate::media::processor::FamilyProcessor;
use crate::model::ConfigError;
use crate::model::config::Fields;
use crate::model::vision::{GotImages, ProcessorConfig};

/// The processor of one model.
#[derive(Debug)]
pub(super) struct GotOcr {
    image_token: [TokenId; 1],
    num_embeds: usize,
    side: usize,
    filter: Filter,
}

impl GotOcr {
    /// Reads the processor of a model whose `config.json` has the fields `outer`.
    pub(super) fn read(outer: &Fields, processor: &ProcessorConfig) -> Result<Self, ConfigError> {
        const SIZE: &str = "size";
        let images = GotImages::read(outer)?;
        let fields = &processor.image;
        fields::require_resize(fields)?;
        let side = images.image_size;
        let default = Size::Exact { height: 384, width: 384 };
        if fields::size(fields, SIZE, true, default)? != (Size::Exact { height: side, width: side })
        {
            return Err(fields.invalid(SIZE, &format!("{side} x {side}, the tower's image_size")));
        }
        Ok(Self {
            image_token: [images.placeholder],
            num_embeds: images.num_embeds,
            side,
            filter: fields::filter(fields, Filter::Bicubic)?,
        })
    }
}

impl FamilyProcessor for GotOcr {
    fn modalities(&self) -> &[Modality] {
        &[Modality::Image]
    }

    fn max_item_embeds(&self) -> usize {
        self.num_embeds
    }

    fn placeholder(&self, _modality: Modality) -> &str {
        "<img><imgpad></img>"
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
        let pixels = Pixels::of(image).resized(self.filter, [self.side; 2]);
        Ok(item(vec![pixels], self.num_embeds, None))
    }
}
