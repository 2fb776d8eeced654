//! Models: from a Hugging Face model folder to logits.
//!
//! [`load_model`] reads a folder and returns a [`Model`]: a [`Backbone`] with its [`LmHead`]. The
//! entry of `architectures` chooses a [`ModelFamily`] of a [`ModelRegistry`], which builds the
//! model from a [`ModelSource`]. A family of this crate is a small file of data in
//! `families`. `config` combines it with `config.json` into a checked [`ModelConfig`], in which
//! each layer is data too. From that, `decoder` builds the backbone with the shared `layers`. A
//! family outside this crate builds its own backbone from the operations in [`ops`]. No code here
//! knows actors, requests or devices: the arithmetic is in the kernels crate.

mod activations;
pub mod adapters;
pub(crate) mod audio;
pub mod config;
mod decoder;
mod dense;
mod draft_heads;
mod encoder_class;
pub(crate) mod encoder_decoder;
mod error;
mod families;
mod family;
mod gemma3n;
mod gemma4;
mod hyper_connections;
mod inventory;
mod layer_mean;
mod layers;
mod load;
pub mod ops;
mod parts;
pub mod pooling;
mod registry;
mod shared_blocks;
mod shortcut;
mod source;
mod static_embedding;
mod step;
mod supported;
mod supported_poolers;
mod two_towers;
pub(crate) mod vision;
mod weight_loader;
mod wrapper;

pub use activations::QuantizedWeights;
pub use adapters::{Adapter, AdapterError, AdapterSites, Adapters, StepAdapters};
pub use config::{ConfigError, GenerationConfig, ModelConfig};
pub(crate) use draft_heads::DrafterFacts;
pub use draft_heads::{DraftHead, HeadInput, HeadRows, load_draft_head};
pub use error::ModelError;
pub use layers::rotary::{InverseFrequencies, inverse_frequencies};
pub(crate) use load::has_own_adapter;
pub use load::{LoadOptions, LoadProgress, load_model};
pub use parts::{
    Backbone, EncoderOutput, KvLayers, KvWindow, LmHead, MediaData, MediaEncoder, MediaInput,
    MediaTensorView, Model,
};
pub use pooling::Pooler;
pub use registry::{DuplicateFamily, ModelFamily, ModelRegistry};
pub use source::ModelSource;
pub use step::{KvPlace, MediaRows, Positions, Step, StepMedia};
pub use supported::{SupportedModels, serves_text_alone, supported_models};
pub use supported_poolers::{SupportedPoolers, supported_poolers};
pub use weight_loader::WeightLoader;

pub use crate::config::{ActivationQuantization, Dtype, HeadMethod, LoadFormat};
pub use crate::weights::{StoredDtype, StoredTensor, WeightsError};
