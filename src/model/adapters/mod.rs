//! Adapters: LoRA weights in PEFT's format, beside the weights of a loaded model.
//!
//! When a model is loaded, each linear layer registers as a *site*. `config` reads an adapter's
//! `adapter_config.json`. `load` finds the site of each of its tensors by their `names`, and packs
//! them. A step names the rows of each adapter, and the layers pass this down to their sites.
//! `classifier` replaces the classifier of a model that pools. `experts` reads matrices of all
//! experts in one tensor, and `embedding` those of the embedding.

mod classifier;
mod config;
mod embedding;
mod error;
mod experts;
mod files;
mod load;
mod names;
mod patterns;
mod sites;
mod step;

use playhouse_kernels::{EmbeddingTable, ExpertLora, LinearWeight, LoraWeights};

use super::pooling::Classifier;
use embedding::EmbeddingLora;
pub use error::AdapterError;
pub(in crate::model) use experts::{Axes, ExpertParameters};
pub use files::{AdapterFiles, Fingerprint};
pub use sites::AdapterSites;
pub(in crate::model) use sites::{ExpertsId, Site, SiteId};
pub use step::{Adapters, StepAdapters};

/// The weights of one adapter, on the model's device.
#[derive(Debug)]
pub struct Adapter {
    /// By site; `None` where the adapter changes nothing.
    sites: Vec<Option<LoraWeights>>,
    /// By layer with experts: for the inner products of its experts, and for those back.
    experts: Vec<[Option<ExpertLora>; 2]>,
    /// The embedding that replaces the model's.
    embedding: Option<EmbeddingTable>,
    /// The change of the embedding.
    embedding_lora: Option<EmbeddingLora>,
    /// The output layer that replaces the model's.
    lm_head: Option<LinearWeight>,
    /// The classifier that replaces the model's.
    classifier: Option<Classifier>,
    max_rank: usize,
    size_bytes: usize,
}

impl Adapter {
    /// Returns the classifier that replaces the model's, if there is one.
    #[must_use]
    pub fn classifier(&self) -> Option<&Classifier> {
        self.classifier.as_ref()
    }

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
