//! Images of PaliGemma: one size (HF `SiglipImageProcessor`, `PaliGemmaProcessor`). All tokens of a
//! prompt attend to each other, so the first image spans it.

use image::RgbImage;
use playhouse_actors::{
    logic::request::{
        ids::TokenId,
        media::{Modality, ProcessedMedia},
    },
    ports::{ExpandedPrompt, MediaError},
};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::llava::Llava;
use super::token_of;
use crate::media::processor::FamilyProcessor;
use crate::model::ConfigError;
use crate::model::config::Fields;
use crate::model::vision::{ProcessorConfig, VisionFamily};

/// The processor of one model.
#[derive(Debug)]
pub(super) struct PaliGemma {
    images: Llava,
    /// The token that begins the text, behind the last image.
    begin: TokenId,
    /// The tokens that end a prompt.
    end: Vec<TokenId>,
}

impl PaliGemma {
    /// Reads the processor of a model whose `config.json` has the fields `outer`.
    pub(super) fn read(
        outer: &Fields,
        processor: &ProcessorConfig,
        encode: &dyn Fn(&str) -> Vec<TokenId>,
    ) -> Result<Self, ConfigError> {
        const LEN: &str = "image_seq_length";
        let images = Llava::read(VisionFamily::PaliGemma, outer, processor)?;
        let (fields, num_embeds) = (&processor.image, images.max_item_embeds());
        if fields.size(LEN)?.is_some_and(|len| len != num_embeds) {
            return Err(fields.invalid(LEN, &format!("{num_embeds}, the patches of an image")));
        }
        let begin = token_of(&processor.whole, "bos_token", "<bos>", encode)?;
        Ok(Self { images, begin, end: encode("\n") })
    }
}

impl FamilyProcessor for PaliGemma {
    fn modalities(&self) -> &[Modality] {
        self.images.modalities()
    }

    fn max_item_embeds(&self) -> usize {
        self.images.max_item_embeds()
    }

    fn placeholder(&self, modality: Modality) -> &str {
        self.images.placeholder(modality)
    }

    fn placeholder_tokens(&self, modality: Modality) -> &[TokenId] {
        self.images.placeholder_tokens(modality)
    }

    fn tokens(&self, media: &ProcessedMedia) -> Vec<TokenId> {
        self.images.tokens(media)
    }

    fn is_placeholder(&self, token: TokenId) -> bool {
        self.images.is_placeholder(token)
    }

    /// Moves the token that begins the text behind the last image, and ends the prompt with a line
    /// feed. The first image then spans the prompt. Its name has a hash of the prompt and of its
    /// images' names, because the states of all tokens depend on them.
    fn join(&self, prompt: &mut ExpandedPrompt) {
        let Some(last) = prompt.features.last() else { return };
        let text = last.offset + last.length;
        if prompt.tokens.get(text) != Some(&self.begin) {
            prompt.tokens.insert(text, self.begin);
        }
        if prompt.tokens.first() == Some(&self.begin) {
            prompt.tokens.remove(0);
            let items = prompt.features.iter_mut();
            items.for_each(|item| item.offset = item.offset.saturating_sub(1));
        }
        if !prompt.tokens.ends_with(&self.end) {
            prompt.tokens.extend(&self.end);
        }
        let mut digest = Sha256::new();
        prompt.tokens.iter().for_each(|token| digest.update(token.to_le_bytes()));
        for item in &prompt.features {
            digest.update((item.offset as u64).to_le_bytes());
            digest.update((item.identifier.len() as u64).to_le_bytes());
            digest.update(item.identifier.as_bytes());
        }
        let hash: String = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        if let Some(first) = prompt.features.first_mut() {
            first.identifier = format!("prompt:{hash}:{}", first.identifier).into();
            (first.offset, first.length) = (0, prompt.tokens.len());
        }
    }

    fn image(
        &self,
        image: &RgbImage,
        kwargs: &Map<String, Value>,
    ) -> Result<ProcessedMedia, MediaError> {
        self.images.image(image, kwargs)
    }
}
