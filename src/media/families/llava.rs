//! Images of LLaVA 1.5 and its descendants: one size, cut from the middle (HF `CLIPImageProcessor`,
//! `LlavaImageProcessor`, `SiglipImageProcessor`, `LlavaProcessor`).

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
use super::sizes;
use crate::media::processor::FamilyProcessor;
use crate::model::ConfigError;
use crate::model::config::Fields;
use crate::model::vision::{ProcessorConfig, TileImages, VisionFamily};

/// The processor of one model.
#[derive(Debug)]
pub(super) struct Llava {
    image_token: [TokenId; 1],
    num_embeds: usize,
    image_size: usize,
    /// The colour around an image that becomes a square first.
    square: Option<[u8; 3]>,
    resize: Option<(Size, Filter)>,
    crop: Option<[usize; 2]>,
}

impl Llava {
    /// Reads the processor of a model whose `config.json` has the fields `outer`.
    pub(super) fn read(
        family: VisionFamily,
        outer: &Fields,
        processor: &ProcessorConfig,
    ) -> Result<Self, ConfigError> {
        let images = TileImages::read(family, outer)?;
        let fields = &processor.image;
        let class = fields::class(fields)?;
        let is_siglip = match class.as_deref() {
            None => family == VisionFamily::SiglipModel,
            Some(name) => name.starts_with("SiglipImageProcessor"),
        };
        let square = |side: usize| Size::Exact { height: side, width: side };
        let default = if is_siglip { square(224) } else { Size::Shortest(224) };
        let resize = fields.flag_or("do_resize", true)?.then(|| {
            // A number is the shorter side, also for `SiglipImageProcessor`.
            let size = fields::size(fields, "size", false, default)?;
            Ok::<_, ConfigError>((size, fields::filter(fields, Filter::Bicubic)?))
        });
        let crop = fields.flag_or("do_center_crop", !is_siglip)?.then(|| {
            match fields::size(fields, "crop_size", true, square(224))? {
                Size::Exact { height, width } => Ok::<_, ConfigError>([height, width]),
                Size::Shortest(side) | Size::Bounded { shortest: side, .. } => Ok([side, side]),
            }
        });
        // Without a name, transformers takes the class of LLaVA's models.
        let may_pad = matches!(class.as_deref(), None | Some("LlavaImageProcessor"));
        let may_pad = may_pad && !family.is_of_two_towers();
        let is_padded = may_pad && fields.flag_or("do_pad", false)?;
        let mean = processor.scale(images.scale)?.mean;
        Ok(Self {
            image_token: [images.placeholder],
            num_embeds: images.num_embeds,
            image_size: images.image_size,
            square: is_padded.then(|| mean.map(|mean| (mean * 255.0) as u8)),
            resize: resize.transpose()?,
            crop: crop.transpose()?,
        })
    }
}

impl Llava {
    /// Returns the same for a model that makes one vector of an image.
    pub(super) fn with_one_vector(self) -> Self {
        Self { num_embeds: 1, ..self }
    }

    /// Returns the error of an image that would come to the encoder with this size.
    fn of_another_size(&self, [height, width]: [usize; 2]) -> MediaError {
        let expected = self.image_size;
        invalid(&format!(
            "it has {height} x {width} pixels, and the model takes {expected} x {expected}"
        ))
    }
}

impl FamilyProcessor for Llava {
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

    fn image(
        &self,
        image: &RgbImage,
        _kwargs: &Map<String, Value>,
    ) -> Result<ProcessedMedia, MediaError> {
        let mut pixels = Pixels::of(image);
        if let Some(colour) = self.square {
            let side = pixels.height.max(pixels.width);
            let first = |part: usize| -(((side - part) / 2) as isize);
            let from = [first(pixels.height), first(pixels.width)];
            pixels = pixels.part(from, [side, side], colour);
        }
        // A client may set the size, and a larger crop would take memory before it is refused.
        if let Some(crop) = self.crop.filter(|crop| *crop != [self.image_size; 2]) {
            return Err(self.of_another_size(crop));
        }
        if let Some((size, filter)) = self.resize {
            let size = sizes::target([pixels.height, pixels.width], size);
            let size = size.ok_or_else(|| invalid("one side is much longer than the other"))?;
            pixels = pixels.resized(filter, size);
        }
        if let Some(size) = self.crop {
            pixels = pixels.center(size);
        }
        if [pixels.height, pixels.width] != [self.image_size; 2] {
            return Err(self.of_another_size([pixels.height, pixels.width]));
        }
        Ok(item(vec![pixels], self.num_embeds, None))
    }
}

/// Returns the error of an image that the processor does not accept.
pub(super) fn invalid(reason: &str) -> MediaError {
    MediaError::Invalid { modality: Modality::Image, reason: reason.to_owned() }
}
