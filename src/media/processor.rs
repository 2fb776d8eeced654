//! The part of a family in processing media: from pixels or samples to the encoder's tensors, and
//! from an item to its tokens.

use std::sync::Arc;

use image::RgbImage;
use playhouse_actors::{
    logic::request::{
        ids::TokenId,
        media::{Modality, ProcessedMedia},
    },
    ports::{ExpandedPrompt, MediaError},
};
use serde_json::{Map, Value};

use super::frames::Video;

/// Processes the media of one model, as its Hugging Face processor does. Decoding, limits, caches
/// and names are elsewhere.
pub(crate) trait FamilyProcessor: Send + Sync {
    /// Returns the kinds of items that the model takes.
    fn modalities(&self) -> &[Modality];

    /// Returns the largest number of embeddings of one part of an item.
    fn max_item_embeds(&self) -> usize;

    /// Returns the most items of a kind in a prompt, if the model takes no more.
    fn most_items(&self) -> Option<usize> {
        None
    }

    /// Returns the text that stands for an item in a message, if the chat template writes none.
    fn placeholder(&self, modality: Modality) -> &str;

    /// Returns the same for the item of a kind with the index `index`, if it depends on that.
    fn numbered_placeholder(&self, modality: Modality, _index: usize) -> String {
        self.placeholder(modality).to_owned()
    }

    /// Returns another text that clients may write for an item in a message, if there is one.
    fn other_placeholder(&self, _modality: Modality) -> Option<&str> {
        None
    }

    /// Returns the tokens that stand for one item in a prompt before expansion. They contain no
    /// text around it, for example marks of its start and end that the template writes.
    fn placeholder_tokens(&self, modality: Modality) -> &[TokenId];

    /// Returns the tokens of an item that replace [`FamilyProcessor::placeholder_tokens`]: one
    /// placeholder for each embedding, and marks between them.
    fn tokens(&self, media: &ProcessedMedia) -> Vec<TokenId>;

    /// Returns whether a token of [`FamilyProcessor::tokens`] takes an embedding.
    fn is_placeholder(&self, token: TokenId) -> bool;

    /// Returns the parts of an item that are encoded apart from each other. Among the item's
    /// tokens, each has a run of placeholders, in the same order. By default an item is one part.
    fn parts(&self, media: &Arc<ProcessedMedia>) -> Vec<Arc<ProcessedMedia>> {
        vec![Arc::clone(media)]
    }

    /// Joins tokens of a prompt's text with those of the items beside them, where the tokenizer
    /// makes one token of both. Also changes items that depend on others of the prompt.
    fn join(&self, _prompt: &mut ExpandedPrompt) {}

    /// Returns whether all tokens of a prompt attend to its item, which then has no tokens of its
    /// own (encoder-decoder).
    fn is_attended(&self) -> bool {
        false
    }

    /// Returns the special tokens around a text, if a prompt is either a text or one item.
    fn stands_alone(&self) -> Option<&[TokenId]> {
        None
    }

    /// Returns whether padding tokens follow each text that is pooled, up to the longest that is
    /// accepted.
    fn pads_texts(&self) -> bool {
        false
    }

    /// Makes an image ready for the encoder. `kwargs` are the client's `mm_processor_kwargs`.
    /// Unknown ones are ignored.
    ///
    /// # Errors
    /// [`MediaError`] if the image or a setting is not accepted.
    fn image(
        &self,
        image: &RgbImage,
        kwargs: &Map<String, Value>,
    ) -> Result<ProcessedMedia, MediaError>;

    /// Returns the places of the frames that are processed, of a video with `total` frames. A
    /// second has `fps` of them, if that is known. By default, all are processed.
    ///
    /// # Errors
    /// As [`FamilyProcessor::image`].
    fn chosen_frames(
        &self,
        total: usize,
        _fps: Option<f64>,
        _kwargs: &Map<String, Value>,
    ) -> Result<Vec<usize>, MediaError> {
        Ok((0..total).collect())
    }

    /// Makes a video ready for the encoder.
    ///
    /// # Errors
    /// As [`FamilyProcessor::image`]. The default takes no videos.
    fn video(
        &self,
        _video: &Video,
        _kwargs: &Map<String, Value>,
    ) -> Result<ProcessedMedia, MediaError> {
        Err(MediaError::TooMany { modality: Modality::Video, limit: 0 })
    }

    /// Returns the samples a second that [`FamilyProcessor::audio`] takes.
    fn sampling_rate(&self) -> u32 {
        16_000
    }

    /// Returns the seconds that a model which writes down what it hears takes of one sound.
    fn sound_seconds(&self) -> Option<u32> {
        None
    }

    /// Makes a sound ready for the encoder. It has one channel.
    ///
    /// # Errors
    /// As [`FamilyProcessor::image`]. The default takes no sounds.
    fn audio(
        &self,
        _samples: &[f32],
        _kwargs: &Map<String, Value>,
    ) -> Result<ProcessedMedia, MediaError> {
        Err(MediaError::TooMany { modality: Modality::Audio, limit: 0 })
    }
}
