//! The port to the model's processor of media: bytes of images and sounds become tensors, and
//! placeholders in a prompt become as many tokens as the encoder has embeddings.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Map, Value};
use thiserror::Error;

use crate::logic::request::{
    ids::TokenId,
    media::{Modality, MultimodalFeature, ProcessedMedia},
};

/// The name of the settings of decoding among [`RawMedia::kwargs`]: an object for each kind, as
/// vLLM's `media_io_kwargs`.
pub const MEDIA_IO_KWARGS: &str = "media_io_kwargs";

/// An item as its client sent it.
#[derive(Debug, Clone, PartialEq)]
pub struct RawMedia {
    /// The kind that the client gave.
    pub modality: Modality,
    /// The content.
    pub source: MediaSource,
    /// The client's own name for the content. Equal names mean equal content.
    pub uuid: Option<Arc<str>>,
    /// Settings of the processor that the client overrides.
    pub kwargs: Map<String, Value>,
}

/// The content of an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MediaSource {
    /// A file, for example a PNG or a WAV.
    File(Arc<[u8]>),
    /// The files of a video's frames, in order.
    Frames(Vec<Arc<[u8]>>),
    /// Embeddings in the place of an encoder's: files of tensors by the names of their fields, for
    /// example `image_embeds`. They are of `torch.save` or of safetensors.
    Embeddings(BTreeMap<String, Arc<[u8]>>),
    /// No content: the item was sent before under the same uuid.
    Named,
}

/// An item that the processor has made ready for the encoder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadyMedia {
    /// Hash of its content, or the name that the client gave it.
    pub identifier: Arc<str>,
    /// The content.
    pub media: Arc<ProcessedMedia>,
}

/// A prompt whose placeholders stand for single embeddings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExpandedPrompt {
    /// All tokens.
    pub tokens: Vec<TokenId>,
    /// The places of the items, sorted by offset.
    pub features: Vec<MultimodalFeature>,
}

/// The processor of a model's media. Calls come from many blocking threads at once. They are pure
/// but for a cache of processed items, and bounded in time and memory.
pub trait MediaProcessor: Send + Sync + 'static {
    /// Returns the largest number of items of a kind in one prompt; 0 if the model takes none.
    fn limit(&self, modality: Modality) -> usize;

    /// Returns the largest number of embeddings of one item.
    fn max_item_embeds(&self) -> usize;

    /// Returns the text that stands for the `index`-th item of a kind (from 0) in a message, for
    /// templates whose messages are plain text.
    fn placeholder(&self, modality: Modality, index: usize) -> Option<String>;

    /// Returns another text that may stand for an item of a kind in such a message, if there is
    /// one. It counts only in messages with items of that kind.
    fn other_placeholder(&self, _modality: Modality) -> Option<&str> {
        None
    }

    /// Returns the seconds that the model hears of one sound, if it writes down what it hears. A
    /// longer sound must come in pieces.
    fn sound_seconds(&self) -> Option<u32> {
        None
    }

    /// Returns whether items of a kind may come as embeddings.
    ///
    /// # Errors
    /// [`MediaError::EmbedsDisabled`] and [`MediaError::Embeds`] with the reason why not.
    fn check_embeds(&self, modality: Modality) -> Result<(), MediaError> {
        Err(MediaError::EmbedsDisabled { modality })
    }

    /// Decodes an item and makes it ready for the encoder.
    ///
    /// # Errors
    /// [`MediaError`] for content that is broken, too large, or not known.
    fn process(&self, raw: &RawMedia) -> Result<ReadyMedia, MediaError>;

    /// Returns the tokens of a prompt that take an item's embeddings.
    fn num_tokens(&self, item: &ReadyMedia) -> usize {
        item.media.num_embeds
    }

    /// Replaces the placeholder of each item, in order, by the tokens of its embeddings.
    ///
    /// # Errors
    /// [`MediaError::Placeholders`] if the prompt has another number of placeholders.
    fn expand(
        &self,
        tokens: Vec<TokenId>,
        media: &[ReadyMedia],
    ) -> Result<ExpandedPrompt, MediaError>;

    /// Returns whether padding tokens follow each text that is pooled, up to the longest that is
    /// accepted.
    fn pads_texts(&self) -> bool {
        false
    }

    /// Returns the most memory that [`MediaProcessor::process`] takes for an item while it runs,
    /// beside the item itself. It reads no more than the item's header.
    fn working_bytes(&self, _raw: &RawMedia) -> usize {
        0
    }

    /// Forgets all processed items. Items without content are not found until they are sent again.
    fn clear(&self) {}
}

/// Makes the items of a prompt ready, and replaces their placeholders in its `tokens`. Stops at the
/// item that exceeds `max_model_len`: a small file may become much memory.
///
/// # Errors
/// [`MediaError`] of the first item that is refused, or if placeholders and items do not fit
/// together. A model without a `processor` takes no item.
pub fn expanded_prompt(
    processor: Option<&Arc<dyn MediaProcessor>>,
    tokens: Vec<TokenId>,
    items: &[RawMedia],
    max_model_len: usize,
) -> Result<ExpandedPrompt, MediaError> {
    let modality = items.first().map(|item| item.modality).unwrap_or_default();
    let processor = processor.ok_or(MediaError::TooMany { modality, limit: 0 })?;
    let mut ready = Vec::new();
    let mut min_prompt_tokens = 0;
    for (place, item) in items.iter().enumerate() {
        let index =
            || items[..place].iter().filter(|other| other.modality == item.modality).count();
        let item = processor.process(item).map_err(|error| match error {
            MediaError::UnknownUuid { modality, .. } => {
                MediaError::UnknownUuid { modality, index: index() }
            }
            error => error,
        })?;
        min_prompt_tokens += processor.num_tokens(&item);
        if min_prompt_tokens > max_model_len {
            return Err(MediaError::PromptTooLong { max_model_len, min_prompt_tokens });
        }
        ready.push(item);
    }
    processor.expand(tokens, &ready)
}

/// The reason why an item cannot be served. All cases concern the client's request.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum MediaError {
    /// The content is broken, or of a format that is not known.
    #[error("Failed to load {modality}: {reason}", modality = .modality.as_str())]
    Invalid {
        /// The kind of the item.
        modality: Modality,
        /// The fault.
        reason: String,
    },
    /// The content is larger than accepted.
    #[error(
        "the {modality} has {size} {unit}, and at most {limit} are accepted",
        modality = .modality.as_str()
    )]
    TooLarge {
        /// The kind of the item.
        modality: Modality,
        /// Its size.
        size: u64,
        /// The unit of the size, for example `pixels`.
        unit: &'static str,
        /// The largest size that is accepted.
        limit: u64,
    },
    /// More items than accepted.
    #[error(
        "At most {limit} {modality}(s) may be provided in one prompt.",
        modality = .modality.as_str()
    )]
    TooMany {
        /// The kind of the items.
        modality: Modality,
        /// The largest number that is accepted.
        limit: usize,
    },
    /// An item without content, whose name is not known.
    #[error(
        "Cache miss for {modality} at index {index} but data is not provided.",
        modality = .modality.as_str()
    )]
    UnknownUuid {
        /// The kind of the item.
        modality: Modality,
        /// Its place among the items of its kind, from 0.
        index: usize,
    },
    /// The items alone exceed the model's context. Those behind were not processed.
    #[error(
        "This model's maximum context length is {max_model_len} tokens. However, the images, \
         videos and sounds of your prompt have at least {min_prompt_tokens} tokens. Send fewer or \
         smaller ones."
    )]
    PromptTooLong {
        /// Maximum number of tokens in the model's context.
        max_model_len: usize,
        /// Number of tokens of the items that were processed.
        min_prompt_tokens: usize,
    },
    /// The prompt and its items do not fit together.
    #[error("the prompt has {found} placeholders for {items} images, videos and sounds")]
    Placeholders {
        /// The placeholders in the prompt.
        found: usize,
        /// The items.
        items: usize,
    },
    /// An item came as embeddings, which the settings do not allow.
    #[error(
        "You must set `--enable-mm-embeds` to input `{modality}_embeds`",
        modality = .modality.as_str()
    )]
    EmbedsDisabled {
        /// The kind of the item.
        modality: Modality,
    },
    /// The embeddings of an item are not those of the model.
    #[error("{reason}")]
    Embeds {
        /// The kind of the item.
        modality: Modality,
        /// The fault.
        reason: String,
    },
    /// A setting of the processor is not valid.
    #[error("mm_processor_kwargs: {0}")]
    Kwargs(String),
    /// A prompt has text beside an item, and the model takes one of them.
    #[error(
        "The model accepts text-only or image-only inputs, not both! You must pass an image with \
         an empty text prompt."
    )]
    TextBeside,
}

impl MediaError {
    /// Returns the kind of the item, if the error is about one.
    #[must_use]
    pub fn modality(&self) -> Option<Modality> {
        match self {
            Self::Invalid { modality, .. }
            | Self::TooLarge { modality, .. }
            | Self::TooMany { modality, .. }
            | Self::UnknownUuid { modality, .. }
            | Self::EmbedsDisabled { modality }
            | Self::Embeds { modality, .. } => Some(*modality),
            Self::PromptTooLong { .. }
            | Self::Placeholders { .. }
            | Self::Kwargs(_)
            | Self::TextBeside => None,
        }
    }
}
