//! The keys that distinguish two blocks with the same tokens.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::cbor::Cbor;
use crate::logic::planted::{Bug, planted};
use crate::logic::request::{lora::LoraRequest, media::MultimodalFeature};

/// One extra key of a block's hash, written as an array that begins with its tag.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExtraKey {
    /// `("lora", name, path)`: the adapter, in every block. Further contents of the same name and
    /// path have their number as a fourth element, which vLLM's keys lack.
    Lora(Arc<LoraRequest>),
    /// `("mm", identifier, offset)`: an image or sound that overlaps the block.
    Multimodal {
        /// Hash of the item's content.
        identifier: Arc<str>,
        /// Beginning of the item, relative to the block's first token. Negative if it began in an
        /// earlier block.
        offset: i64,
    },
    /// `("cache_salt", salt)`: only in a request's first block. The chain carries it to the others.
    CacheSalt(Arc<str>),
}

impl ExtraKey {
    pub(super) fn encode(&self, cbor: &mut Cbor) {
        match self {
            Self::Lora(adapter) => {
                let is_first = adapter.version == 0;
                cbor.array(if is_first { 3 } else { 4 });
                cbor.text("lora");
                cbor.text(&adapter.name);
                cbor.text(&adapter.path);
                if !is_first {
                    // Versions count anew in each process, and a journal brings requests of
                    // another one.
                    cbor.text(&adapter.fingerprint.to_string());
                }
            }
            Self::Multimodal { identifier, offset } => {
                cbor.array(3);
                cbor.text("mm");
                cbor.text(identifier);
                cbor.integer(*offset);
            }
            Self::CacheSalt(salt) => {
                cbor.array(2);
                cbor.text("cache_salt");
                cbor.text(salt);
            }
        }
    }
}

/// Returns the extra keys of the block with tokens `start..start + block_size` of a request. These
/// are the adapter, the media that overlap it (`features` is sorted by offset), then the salt if it
/// is the first.
#[must_use]
pub fn extra_keys(
    start: usize,
    block_size: usize,
    adapter: Option<&Arc<LoraRequest>>,
    features: &[MultimodalFeature],
    cache_salt: Option<&Arc<str>>,
) -> Vec<ExtraKey> {
    // The chain carries an item that all tokens attend to from the first block to the others.
    let overlaps = |feature: &&MultimodalFeature| match feature.is_attended() {
        true => start == 0,
        false => feature.offset < start + block_size && feature.offset + feature.length > start,
    };
    let features = if planted(Bug::IgnoreMedia) { &[] } else { features };
    let media = features.iter().filter(overlaps).map(|feature| ExtraKey::Multimodal {
        identifier: Arc::clone(&feature.identifier),
        offset: feature.offset as i64 - start as i64,
    });
    let salt = cache_salt.filter(|_| start == 0).map(|salt| ExtraKey::CacheSalt(Arc::clone(salt)));
    let adapter = adapter.map(|adapter| ExtraKey::Lora(Arc::clone(adapter)));
    adapter.into_iter().chain(media).chain(salt).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offsets(start: usize, offset: usize, length: usize) -> Vec<i64> {
        let feature = MultimodalFeature::for_test("a", offset, length);
        let keys = extra_keys(start, 16, None, &[feature], Some(&"salt".into()));
        keys.iter()
            .filter_map(|key| match key {
                ExtraKey::Multimodal { offset, .. } => Some(*offset),
                ExtraKey::CacheSalt(_) | ExtraKey::Lora(_) => None,
            })
            .collect()
    }

    #[test]
    fn a_media_key_stands_only_in_the_blocks_that_it_overlaps() {
        assert_eq!(offsets(0, 20, 20), [0i64; 0]);
        assert_eq!(offsets(16, 20, 20), [4]);
        assert_eq!(offsets(32, 20, 20), [-12]);
        assert_eq!(offsets(48, 20, 20), [0i64; 0]);
        assert_eq!(offsets(16, 0, 16), [0i64; 0], "it ended where the block begins");
    }

    #[test]
    fn the_salt_stands_only_in_the_first_block() {
        let salt: Arc<str> = "s1".into();
        assert_eq!(extra_keys(0, 16, None, &[], Some(&salt)), [ExtraKey::CacheSalt("s1".into())]);
        assert!(extra_keys(16, 16, None, &[], Some(&salt)).is_empty());
        assert!(extra_keys(0, 16, None, &[], None).is_empty());
    }
}
