//! Models: from a Hugging Face model folder to logits.
//!
//! [`load_model`] reads a folder and returns a [`Model`]: a [`Backbone`] with its [`LmHead`]. A family
//! is a small file of data (`llama`, `mistral`, …); `config` turns it and `config.json` into a checked
//! [`ModelConfig`], in which each layer is data too. From that `decoder` builds the backbone out of
//! shared `layers`. Nothing here knows actors, requests or devices: the arithmetic is the kernels
//! crate's.

mod activations;
pub mod config;
mod decoder;
mod error;
mod family;
mod inventory;
mod layers;
mod llama;
mod load;
mod mistral;
mod parts;
mod qwen2;
mod qwen3;
mod step;

pub use activations::QuantizedWeights;
pub use config::{ConfigError, GenerationConfig, ModelConfig};
pub use error::ModelError;
pub use layers::rotary::{InverseFrequencies, inverse_frequencies};
pub use load::{LoadOptions, LoadProgress, load_model};
pub use parts::{Backbone, LmHead, Model};
pub use step::{Positions, Step};

pub use crate::config::{ActivationQuantization, Dtype, LoadFormat};
