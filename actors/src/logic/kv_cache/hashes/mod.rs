//! Hashes that name a full block by all tokens up to its end: vLLM's `sha256_cbor`, byte for byte.
//!
//! `hash = SHA-256(CBOR [parent, [tokens], null | [extra keys]])`. The parent of the first block is
//! [`none_hash`]. Two prompts share a block's hash exactly when they share all tokens and keys up
//! to its end.

mod cbor;
mod chain;
mod extra_keys;

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use self::cbor::Cbor;
pub use self::{
    chain::{BlockChain, BlockNaming, Content},
    extra_keys::{ExtraKey, extra_keys},
};
use crate::logic::request::ids::TokenId;

/// The seed if the operator gives none.
const DEFAULT_SEED: &str = "vllm-none-hash";

/// The hash of a full block's content.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BlockHash(pub [u8; 32]);

impl fmt::Display for BlockHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for BlockHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlockHash({self})")
    }
}

/// Returns the parent of every first block. `seed` is the value that vLLM takes from
/// `PYTHONHASHSEED`. Engines with different seeds share no hashes.
#[must_use]
pub fn none_hash(seed: Option<&str>) -> BlockHash {
    let mut cbor = Cbor::default();
    cbor.text(seed.unwrap_or(DEFAULT_SEED));
    digest(&cbor)
}

/// Returns the hash of a full block that follows `parent`.
#[must_use]
pub fn hash_block(parent: &BlockHash, tokens: &[TokenId], extra_keys: &[ExtraKey]) -> BlockHash {
    // Five bytes hold any 32-bit token with its head.
    let mut cbor = Cbor::with_capacity(48 + 5 * tokens.len() + 64 * extra_keys.len());
    cbor.array(3);
    cbor.bytes(&parent.0);
    cbor.array(tokens.len());
    for &token in tokens {
        cbor.unsigned(token.into());
    }
    if extra_keys.is_empty() {
        cbor.null();
    } else {
        cbor.array(extra_keys.len());
        extra_keys.iter().for_each(|key| key.encode(&mut cbor));
    }
    digest(&cbor)
}

fn digest(cbor: &Cbor) -> BlockHash {
    BlockHash(Sha256::digest(cbor.as_bytes()).into())
}

#[cfg(test)]
mod tests;
