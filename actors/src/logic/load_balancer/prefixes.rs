//! The beginnings of prompts that one engine has computed lately, in chunks of tokens.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
};

use crate::logic::request::EngineRequest;

/// Number of tokens in a chunk. A shorter beginning is computed as fast as it is found.
pub(super) const CHUNK_LEN: usize = 64;
/// Number of chunks that are remembered of an engine. The oldest ones are forgotten first.
pub(super) const CHUNKS_MAX: usize = 1 << 14;

/// Names a chunk together with all tokens before it. Two names that are equal by chance cost time
/// alone.
type Key = u64;

/// Returns the names of a prompt's chunks. Requests with other adapters or cache salts share none.
/// The contents of images and sounds do not count.
pub(super) fn keys(request: &EngineRequest) -> Vec<Key> {
    let mut hasher = DefaultHasher::new();
    request.cache_salt.hash(&mut hasher);
    request.lora.as_ref().map(|lora| lora.fingerprint).hash(&mut hasher);
    let chunks = request.prompt_token_ids.chunks_exact(CHUNK_LEN).take(CHUNKS_MAX);
    chunks
        .map(|chunk| {
            chunk.hash(&mut hasher);
            hasher.finish()
        })
        .collect()
}

/// The chunks of one engine, each with the time of its last use.
#[derive(Debug, Default)]
pub(super) struct Prefixes {
    last_used: BTreeMap<Key, u64>,
    by_use: BTreeMap<u64, Key>,
    num_uses: u64,
}

impl Prefixes {
    /// Returns the number of chunks from the beginning that were computed.
    pub(super) fn num_shared(&self, keys: &[Key]) -> usize {
        keys.iter().take_while(|key| self.last_used.contains_key(key)).count()
    }

    /// Records that a prompt is computed. Its later chunks count as older, because a prefix ends
    /// where a chunk is missing.
    pub(super) fn add(&mut self, keys: &[Key]) {
        for &key in keys.iter().rev() {
            self.num_uses += 1;
            if let Some(before) = self.last_used.insert(key, self.num_uses) {
                self.by_use.remove(&before);
            }
            self.by_use.insert(self.num_uses, key);
        }
        while self.by_use.len() > CHUNKS_MAX
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.last_used.remove(&oldest);
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        assert_eq!(self.last_used.len(), self.by_use.len());
        self.by_use.len()
    }
}
