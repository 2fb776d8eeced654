//! Images of BLIP-2: one size (HF `BlipImageProcessor`, `Blip2Processor`). The tokens of all images
//! come before the text.

use image::RgbImage;
use playhouse_actors::{
    logic::request::{
        ids::TokenId,
        media::{Modality, ProcessedMedia},
    },
    ports::{ExpandedPrompt, MediaError},
};
use serde_json::{Map, Value};

use super::fields::{self, Size};
use super::item;
use super::resize::{Filter, Pixels};
use crate::media::processor::FamilyProcessor;
use crate::model::ConfigError;
use crate::model::config::Fields;
use crate::model::vision::{Blip2Images, ProcessorConfig};

/// The processor of one model.
#[derive(Debug)]
pub(super) struct Blip2 {
    image_token: [TokenId; 1],
    num_embeds: usize,
    side: usize,
    filter: Filter,
}

impl Blip2 {
    /// Reads the processor of a model whose `config.json` has the fields `outer`.
    pub(super) fn read(outer: &Fields, processor: &ProcessorConfig) -> Result<Self, ConfigError> {
        const SIZE: &str = "size";
        let images = Blip2Images::read(outer)?;
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

impl FamilyProcessor for Blip2 {
    fn modalities(&self) -> &[Modality] {
        &[Modality::Image]
    }

    fn max_item_embeds(&self) -> usize {
        self.num_embeds
    }

    fn placeholder(&self, _modality: Modality) -> &str {
        "<image>"
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

    /// Moves the tokens of images before all others, also before the one that begins the text.
    fn join(&self, prompt: &mut ExpandedPrompt) {
        let ExpandedPrompt { tokens, features } = prompt;
        let (mut moved, mut text, mut from) = (Vec::with_capacity(tokens.len()), Vec::new(), 0);
        for item in features {
            let (start, end) = (item.offset, item.offset + item.length);
            text.extend_from_slice(&tokens[from..start]);
            item.offset = moved.len();
            moved.extend_from_slice(&tokens[start..end]);
            from = end;
        }
        text.extend_from_slice(&tokens[from..]);
        moved.extend(text);
        *tokens = moved;
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use playhouse_actors::ports::ReadyMedia;

    use super::*;
    use crate::media::expand::expanded;

    #[test]
    fn the_tokens_of_all_images_come_first() {
        let processor = Blip2 { image_token: [7], num_embeds: 2, side: 4, filter: Filter::Bicubic };
        let image = |name: &str| ReadyMedia {
            identifier: name.into(),
            media: Arc::new(processor.image(&RgbImage::new(3, 5), &Map::new()).unwrap()),
        };
        let prompt = expanded(&processor, &[1, 7, 2, 3, 7, 4], &[image("a"), image("b")]).unwrap();
        assert_eq!(prompt.tokens, [7, 7, 7, 7, 1, 2, 3, 4]);
        let places: Vec<(usize, usize)> =
            prompt.features.iter().map(|item| (item.offset, item.length)).collect();
        assert_eq!(places, [(0, 2), (2, 2)]);
        let alone = expanded(&processor, &[1, 2], &[]).unwrap();
        assert_eq!(alone.tokens, [1, 2]);
    }
}
