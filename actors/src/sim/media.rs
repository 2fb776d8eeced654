//! The simulator's images. The result of encoding one is a function of its name.

use std::{collections::BTreeMap, ops::Range, sync::Arc};

use parking_lot::Mutex;
use serde_json::json;

use super::{
    model::{Digest, extend},
    record::Record,
    rng::mix,
};
use crate::{
    logic::{
        encoder_cache::UNENCODABLE,
        request::{
            failure::Failure,
            ids::TokenId,
            media::{Modality, MultimodalFeature, ProcessedMedia},
        },
    },
    ports::{
        EncoderExecutor, EncoderFactory, ExecuteError, ExpandedPrompt, MediaError, MediaProcessor,
        MediaSource, ModelInfo, RawMedia, ReadyMedia,
    },
};

/// Number of embeddings of the largest image.
pub const LARGEST: usize = 6;

/// The message of an image that cannot be encoded.
const BROKEN: &str = "planned: this is no image";
/// The message of the panic of an image on which the encoder panics.
const PANIC: &str = "planned: the encoder panics";

const BROKEN_NAME: &str = "broken";
const PANIC_NAME: &str = "panics";
/// The beginning of the names of items that all tokens attend to.
const ATTENDED_NAME: &str = "attended";

/// Returns the image of this number at an offset of a prompt. One in sixteen is broken, on one in
/// sixteen the encoder panics, and to one in sixteen all tokens attend.
#[must_use]
pub fn image(number: u64, offset: usize) -> RawMedia {
    let kind = match number % 16 {
        15 => BROKEN_NAME,
        14 => PANIC_NAME,
        13 => ATTENDED_NAME,
        _ => "good",
    };
    let kwargs = [("offset".to_owned(), json!(offset))];
    RawMedia {
        modality: Modality::Image,
        source: MediaSource::Named,
        uuid: Some(format!("{kind} {number}").into()),
        kwargs: kwargs.into_iter().collect(),
    }
}

fn name(raw: &RawMedia) -> &str {
    raw.uuid.as_deref().unwrap_or_default()
}

/// Returns the number of embeddings of an image.
#[must_use]
pub fn num_embeds(raw: &RawMedia) -> usize {
    1 + name(raw).bytes().map(usize::from).sum::<usize>() % LARGEST
}

fn offset(raw: &RawMedia) -> usize {
    raw.kwargs.get("offset").and_then(serde_json::Value::as_u64).unwrap_or_default() as usize
}

/// Returns whether all tokens attend to an image.
#[must_use]
pub fn is_attended(raw: &RawMedia) -> bool {
    name(raw).starts_with(ATTENDED_NAME)
}

fn feature(raw: &RawMedia) -> MultimodalFeature {
    let num_embeds = num_embeds(raw);
    let is_attended = is_attended(raw);
    let media = ProcessedMedia {
        num_embeds,
        grid: Some([offset(raw) as u32, 0, 0]),
        ..ProcessedMedia::default()
    };
    MultimodalFeature {
        identifier: name(raw).into(),
        offset: if is_attended { 0 } else { offset(raw) },
        length: if is_attended { 0 } else { num_embeds },
        num_embeds,
        media: Arc::new(media),
    }
}

/// Returns the failure of a request with these images, if it fails.
#[must_use]
pub fn failure(images: &[RawMedia]) -> Option<Failure> {
    images.iter().find_map(|image| {
        let name = name(image);
        if name.starts_with(BROKEN_NAME) {
            Some(Failure::Encoder(BROKEN.to_owned()))
        } else if name.starts_with(PANIC_NAME) {
            Some(Failure::Encoder(UNENCODABLE.to_owned()))
        } else {
            None
        }
    })
}

/// Returns the digest with one more token at `position`, which may be a part of an image.
#[must_use]
pub fn extend_with(
    digest: Digest,
    token: TokenId,
    position: usize,
    features: &[MultimodalFeature],
) -> Digest {
    let is_here = |item: &&MultimodalFeature| {
        item.is_attended() || (item.offset..item.offset + item.length).contains(&position)
    };
    features.iter().filter(is_here).fold(extend(digest, token), |digest, item| {
        let content = item.identifier.bytes().fold(5, |all, byte| mix(all ^ u64::from(byte)));
        mix(digest ^ content ^ position as u64) | 1
    })
}

/// Returns the tokens of a step for which any device has memory: those of an image that is computed
/// whole.
#[must_use]
pub fn least_memory(info: &ModelInfo) -> usize {
    if info.attends_within_items { LARGEST } else { 1 }
}

/// Returns whether a step that ends before the `end`-th token computes a part of an image.
#[must_use]
pub fn are_cut(features: &[MultimodalFeature], end: usize) -> bool {
    features.iter().any(|item| item.offset < end && end < item.offset + item.length)
}

/// Returns the places of images in a prompt.
#[must_use]
pub fn features(images: &[RawMedia]) -> Vec<MultimodalFeature> {
    let mut features: Vec<_> = images.iter().map(feature).collect();
    features.sort_by_key(|item| (item.offset, item.length));
    features
}

/// Finds the place of each image in its kwargs.
#[derive(Debug)]
pub struct Processor;

impl MediaProcessor for Processor {
    fn limit(&self, _modality: Modality) -> usize {
        usize::MAX
    }

    fn max_item_embeds(&self) -> usize {
        LARGEST
    }

    fn placeholder(&self, _modality: Modality, _index: usize) -> Option<String> {
        None
    }

    fn process(&self, raw: &RawMedia) -> Result<ReadyMedia, MediaError> {
        let MultimodalFeature { identifier, length, media, .. } = feature(raw);
        // The length tells `expand` whether all tokens attend to it.
        let grid = media.grid.map(|[offset, ..]| [offset, length as u32, 0]);
        let media = Arc::new(ProcessedMedia { grid, ..(*media).clone() });
        Ok(ReadyMedia { identifier, media })
    }

    fn num_tokens(&self, item: &ReadyMedia) -> usize {
        item.media.grid.map_or(0, |[_, length, _]| length as usize)
    }

    fn expand(
        &self,
        tokens: Vec<TokenId>,
        media: &[ReadyMedia],
    ) -> Result<ExpandedPrompt, MediaError> {
        let place = |item: &ReadyMedia| {
            let [offset, length, _] = item.media.grid.unwrap_or_default();
            MultimodalFeature {
                identifier: Arc::clone(&item.identifier),
                offset: if length == 0 { 0 } else { offset as usize },
                length: length as usize,
                num_embeds: item.media.num_embeds,
                media: Arc::clone(&item.media),
            }
        };
        let mut features: Vec<_> = media.iter().map(place).collect();
        features.sort_by_key(|item| (item.offset, item.length));
        Ok(ExpandedPrompt { tokens, features })
    }
}

/// The encoder and its store.
#[derive(Debug)]
pub struct Encoder {
    stored: Mutex<BTreeMap<Arc<str>, usize>>,
    cache_size: usize,
    record: Arc<Record>,
}

impl Encoder {
    /// Returns an encoder whose store has room for `cache_size` embeddings.
    #[must_use]
    pub fn new(cache_size: usize, record: Arc<Record>) -> Arc<Self> {
        Arc::new(Self { stored: Mutex::default(), cache_size, record })
    }

    /// Returns whether an image that these tokens of a prompt need is not encoded.
    #[must_use]
    pub fn lacks(&self, features: &[MultimodalFeature], tokens: Range<usize>) -> bool {
        let stored = self.stored.lock();
        features.iter().any(|item| {
            let is_within = item.offset < tokens.end && !item.is_before(tokens.start);
            (item.is_attended() || is_within) && !stored.contains_key(&item.identifier)
        })
    }
}

/// [`Encoder`] as a factory and as an executor.
#[derive(Debug, Clone)]
pub struct Encoders(pub Arc<Encoder>);

impl EncoderFactory for Encoders {
    fn create(&self) -> Result<Box<dyn EncoderExecutor>, ExecuteError> {
        Ok(Box::new(self.clone()))
    }

    fn stored(&self) -> Vec<(Arc<str>, usize)> {
        let stored = self.0.stored.lock();
        stored.iter().map(|(item, num_embeds)| (Arc::clone(item), *num_embeds)).collect()
    }

    fn remove(&self, identifiers: &[Arc<str>]) {
        let mut stored = self.0.stored.lock();
        stored.retain(|item, _| !identifiers.contains(item));
    }
}

impl EncoderExecutor for Encoders {
    fn encode(
        &mut self,
        items: &[MultimodalFeature],
    ) -> Result<Vec<Result<(), Failure>>, ExecuteError> {
        if items.iter().any(|item| item.identifier.starts_with(PANIC_NAME)) {
            std::panic::resume_unwind(Box::new(PANIC.to_owned()));
        }
        let mut stored = self.0.stored.lock();
        let ends = items.iter().map(|item| {
            if item.identifier.starts_with(BROKEN_NAME) {
                return Err(Failure::Encoder(BROKEN.to_owned()));
            }
            stored.insert(Arc::clone(&item.identifier), item.num_embeds);
            Ok(())
        });
        let ends = ends.collect();
        let num_stored: usize = stored.values().sum();
        let room = self.0.cache_size;
        // A worker may still encode a batch of an earlier manager.
        if num_stored > 2 * room {
            self.0.record.violate(|| format!("{num_stored} embeddings are stored, of {room}"));
        }
        Ok(ends)
    }
}
