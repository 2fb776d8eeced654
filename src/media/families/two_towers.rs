//! Images of CLIP and SigLIP as a model of their own, without text beside them (HF `CLIPProcessor`,
//! `SiglipProcessor`).

use std::collections::BTreeSet;

use image::RgbImage;
use playhouse_actors::{
    logic::request::{
        ids::TokenId,
        media::{Modality, ProcessedMedia},
    },
    ports::MediaError,
};
use serde_json::{Map, Value};

use super::Encode;
use super::llava::Llava;
use crate::media::processor::FamilyProcessor;
use crate::model::ConfigError;
use crate::model::config::Fields;
use crate::model::vision::{ProcessorConfig, VisionFamily};

/// The text for an image in a message. It is no token of these models.
const PLACEHOLDER: &str = "<image>";
/// The fields of the text tower with the tokens that may stand around a text.
const SPECIALS: [&str; 3] = ["bos_token_id", "eos_token_id", "pad_token_id"];

/// The processor of one model.
pub(super) struct TwoTowers {
    images: Llava,
    /// The tokens of [`PLACEHOLDER`].
    placeholder: Vec<TokenId>,
    specials: Vec<TokenId>,
    pads_texts: bool,
}

impl TwoTowers {
    /// Reads the processor of a model whose `config.json` has the fields `outer`.
    pub(super) fn read(
        family: VisionFamily,
        outer: &Fields,
        processor: &ProcessorConfig,
        encode: &Encode,
    ) -> Result<Self, ConfigError> {
        let text = outer.nested("text_config")?.unwrap_or_else(|| Fields::empty_in(outer));
        // The defaults of HF `CLIPTextConfig` and `SiglipTextConfig`.
        let mut specials = BTreeSet::from([1, 49_406, 49_407]);
        for field in SPECIALS {
            let id = text.value(field).and_then(Value::as_u64);
            specials.extend(id.and_then(|id| TokenId::try_from(id).ok()));
        }
        // Published SigLIP models leave the ids out, and their tokenizers add "</s>" or "<eos>".
        for ends in ["</s>", "<eos>", "<pad>", "<bos>"] {
            if let [id] = *encode(ends) {
                specials.insert(id);
            }
        }
        Ok(Self {
            images: Llava::read(family, outer, processor)?.with_one_vector(),
            placeholder: encode(PLACEHOLDER),
            specials: specials.into_iter().collect(),
            // SigLIP was trained with texts of one length, and reads the state of the last token.
            pads_texts: family == VisionFamily::SiglipModel,
        })
    }
}

impl FamilyProcessor for TwoTowers {
    fn modalities(&self) -> &[Modality] {
        &[Modality::Image]
    }

    fn max_item_embeds(&self) -> usize {
        1
    }

    fn placeholder(&self, _modality: Modality) -> &str {
        PLACEHOLDER
    }

    fn placeholder_tokens(&self, _modality: Modality) -> &[TokenId] {
        &self.placeholder
    }

    fn tokens(&self, media: &ProcessedMedia) -> Vec<TokenId> {
        self.images.tokens(media)
    }

    fn is_placeholder(&self, token: TokenId) -> bool {
        self.images.is_placeholder(token)
    }

    fn stands_alone(&self) -> Option<&[TokenId]> {
        Some(&self.specials)
    }

    fn pads_texts(&self) -> bool {
        self.pads_texts
    }

    fn image(
        &self,
        image: &RgbImage,
        kwargs: &Map<String, Value>,
    ) -> Result<ProcessedMedia, MediaError> {
        self.images.image(image, kwargs)
    }
}
