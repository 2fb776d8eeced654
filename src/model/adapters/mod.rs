//! Adapters: LoRA weights in PEFT's format, beside the weights of a loaded model.
//!
//! When a model is loaded, each linear layer registers as a *site*. `config` reads an adapter's
//! `adapter_config.json`. `load` finds the site of each of its tensors and packs them. A step names
//! the rows of each adapter, and the layers pass this down to their sites.

mod config;
mod error;
mod files;
mod load;
mod patterns;
mod sites;
mod step;

use playhouse_kernels::{EmbeddingTable, LinearWeight, LoraWeights};

pub use error::AdapterError;
pub use files::{AdapterFiles, Fingerprint};
pub use sites::AdapterSites;
pub(in crate::model) use sites::{Site, SiteId};
pub use step::{Adapters, StepAdapters};

/// The weights of one adapter, on the model's device.
#[derive(Debug)]
pub struct Adapter {
    /// By site; `None` where the adapter changes nothing.
    sites: Vec<Option<LoraWeights>>,
    /// The embedding that replaces the model's.
    embedding: Option<EmbeddingTable>,
    /// The output layer that replaces the model's.
    lm_head: Option<LinearWeight>,
    max_rank: usize,
    size_bytes: usize,
}

impl Adapter {
    /// Returns the largest rank of its matrices; 0 if it only replaces modules.
    #[must_use]
    pub fn max_rank(&self) -> usize {
        self.max_rank
    }

    /// Returns the bytes of its weights.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        self.size_bytes
    }
}
