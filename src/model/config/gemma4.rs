//! The parts of Gemma 4's decoder around its layers: HF `Gemma4TextConfig`, and
//! `EmbeddingGemma2TextConfig`, whose layers are the same.

use std::borrow::Cow;

use super::ConfigError;
use super::file::Fields;

/// Embeddings of each layer, in models that have them. Each layer has a factor of its output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gemma4Config {
    /// The embeddings of each layer.
    pub per_layer: Option<PerLayerConfig>,
    /// The tokens of media, in a multimodal class.
    pub media_tokens: Option<MediaTokens>,
}

/// Embeddings that each layer has of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PerLayerConfig {
    /// The width of a layer's embeddings.
    pub width: usize,
    /// Tokens with embeddings of each layer. Other tokens have those of token 0. `None`: no token
    /// has some, and a layer's embeddings are projections of its input alone (EmbeddingGemma 2).
    pub vocab: Option<usize>,
}

/// The tokens in the places of images, videos and sounds. All embeddings of such a token are those
/// of another one, before those of the item take their places: HF `Gemma4Model.forward`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MediaTokens {
    placeholders: [u32; 3],
    padding: u32,
}

impl MediaTokens {
    /// Reads the tokens of a multimodal class with the fields `outer`, whose text model has the
    /// fields `text` and a vocabulary of `vocab_size`.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`] if a field is no id of a token.
    pub(super) fn read(
        outer: &Fields,
        text: &Fields,
        vocab_size: usize,
    ) -> Result<Self, ConfigError> {
        const PADDING: &str = "pad_token_id";
        let token = |fields: &Fields, field: &str, default: u32| match fields.count(field)? {
            None => Ok(default),
            Some(id) => u32::try_from(id).map_err(|_| fields.invalid(field, "the id of a token")),
        };
        let padding = token(text, PADDING, 0)?;
        if padding as usize >= vocab_size {
            return Err(text.invalid(PADDING, &format!("a token of the {vocab_size}")));
        }
        Ok(Self {
            placeholders: [
                token(outer, "image_token_id", 258_880)?,
                token(outer, "video_token_id", 258_884)?,
                token(outer, "audio_token_id", 258_881)?,
            ],
            padding,
        })
    }

    /// Returns the tokens whose embeddings stand for those of `token_ids`.
    pub(in crate::model) fn replaced<'a>(&self, token_ids: &'a [u32]) -> Cow<'a, [u32]> {
        let is_replaced = |id: &u32| self.placeholders.contains(id);
        if !token_ids.iter().any(is_replaced) {
            return Cow::Borrowed(token_ids);
        }
        let one = |id: &u32| if is_replaced(id) { self.padding } else { *id };
        token_ids.iter().map(one).collect()
    }
}
