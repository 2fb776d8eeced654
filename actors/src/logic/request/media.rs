//! Images, sounds and texts of a prompt, in the form that the model's encoder takes.
//!
//! A request owns its processed media until it ends, so an encoder that loses its results can
//! compute them again from the request alone.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::ids::TokenId;

/// The kind of an item.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
pub enum Modality {
    /// A picture.
    #[default]
    Image,
    /// A sound.
    Audio,
    /// Frames of a video.
    Video,
    /// The prompt of an encoder-decoder model for text.
    Text,
}

impl Modality {
    /// The kinds of items that come beside a prompt.
    pub const ALL: [Self; 3] = [Self::Image, Self::Audio, Self::Video];

    /// Returns the API's word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Image => "image",
            Self::Audio => "audio",
            Self::Video => "video",
            Self::Text => "text",
        }
    }
}

/// The type of a [`MediaTensor`]'s elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum MediaDtype {
    /// Bytes, for example the channels of pixels.
    U8,
    /// Floats in little-endian bytes.
    F32,
    /// The same, and they are hidden states of the text model: the encoder's own result.
    Embedding,
    /// Ids of tokens, u32 in little-endian bytes.
    TokenIds,
}

impl MediaDtype {
    /// Returns the number of bytes of an element.
    #[must_use]
    pub fn size(self) -> usize {
        match self {
            Self::U8 => 1,
            Self::F32 | Self::Embedding | Self::TokenIds => 4,
        }
    }
}

/// Numbers that the model's processor made of an item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MediaTensor {
    /// The sizes of its axes, the outermost first.
    pub shape: Vec<usize>,
    /// The type of the elements.
    pub dtype: MediaDtype,
    /// The elements, in row-major order.
    pub data: Arc<[u8]>,
}

/// An item in the form that the model's encoder takes. Its meaning is between the model's processor
/// and its encoder. No other part reads the tensors.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ProcessedMedia {
    /// The kind of the item.
    pub modality: Modality,
    /// For example the pixels of an image and of its tiles.
    pub tensors: Vec<MediaTensor>,
    /// Number of embeddings that the encoder computes.
    pub num_embeds: usize,
    /// Frames, rows and columns of its embeddings, in a model whose positions have three axes.
    pub grid: Option<[u32; 3]>,
}

impl ProcessedMedia {
    /// Returns the size of all tensors.
    #[must_use]
    pub fn num_bytes(&self) -> usize {
        self.tensors.iter().map(|tensor| tensor.data.len()).sum()
    }

    /// Returns whether the client sent the embeddings, so that there is nothing to encode. The
    /// first tensor has them, and each further one belongs to a later layer:
    /// `[num_embeds, hidden_size]`.
    #[must_use]
    pub fn is_embedded(&self) -> bool {
        self.tensors.first().is_some_and(|tensor| tensor.dtype == MediaDtype::Embedding)
    }
}

/// One item of a prompt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MultimodalFeature {
    /// Hash of its content, or the name that the client gave it.
    pub identifier: Arc<str>,
    /// Position of its first placeholder token in the prompt.
    pub offset: usize,
    /// Number of tokens from the first placeholder to the last. Other tokens may lie between. 0 if
    /// all tokens of the request attend to the item, as in encoder-decoder models. If all tokens
    /// of a prompt attend to each other, the first item has all of them, also around the others.
    pub length: usize,
    /// Number of embeddings that the encoder computes for it. As many of its tokens are
    /// placeholders, and take one embedding each.
    pub num_embeds: usize,
    /// The content.
    pub media: Arc<ProcessedMedia>,
}

impl MultimodalFeature {
    /// Returns the text `tokens`, to which all tokens of the request attend. It takes one embedding
    /// for each token. Equal texts have equal identifiers.
    #[must_use]
    pub fn of_text(tokens: &[TokenId]) -> Self {
        let data: Arc<[u8]> = tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
        let digest = Sha256::digest(&data);
        let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let num_embeds = tokens.len();
        let tensor = MediaTensor { shape: vec![num_embeds], dtype: MediaDtype::TokenIds, data };
        let (modality, tensors) = (Modality::Text, vec![tensor]);
        let media = ProcessedMedia { modality, tensors, num_embeds, grid: None };
        let identifier = format!("{}:{hex}", modality.as_str()).into();
        Self { identifier, offset: 0, length: 0, num_embeds, media: Arc::new(media) }
    }

    /// Returns the number of tokens of the text that the item is; 0 if it is none.
    #[must_use]
    pub fn num_text_tokens(&self) -> usize {
        if self.media.modality == Modality::Text { self.num_embeds } else { 0 }
    }

    /// Returns whether all tokens of the request attend to the item.
    #[must_use]
    pub fn is_attended(&self) -> bool {
        self.length == 0
    }

    /// Returns whether no token from the `num_computed`-th on needs the item.
    #[must_use]
    pub fn is_before(&self, num_computed: usize) -> bool {
        !self.is_attended() && self.offset + self.length <= num_computed
    }
}

#[cfg(any(test, feature = "testing"))]
impl MultimodalFeature {
    /// Returns an item of a test: `length` placeholders from `offset` on, and no content.
    #[must_use]
    pub fn for_test(identifier: &str, offset: usize, length: usize) -> Self {
        let media = ProcessedMedia { num_embeds: length, ..ProcessedMedia::default() };
        let media = Arc::new(media);
        Self { identifier: identifier.into(), offset, length, num_embeds: length, media }
    }
}
