//! The configuration of a model: `config.json` in the forms of transformers 4 and 5, and
//! `generation_config.json`. The metadata of a GGUF file is translated into the same form.

mod error;
mod file;
mod generation;
mod gguf;
mod layer;
mod max_model_len;
mod model;
mod quantization;
mod rope;
mod source;
mod unsupported;

pub use error::ConfigError;
pub use generation::GenerationConfig;
pub use layer::{AttentionConfig, FeedForward, GatedMlpConfig, LayerConfig, Mixer};
pub use model::ModelConfig;
pub use rope::{Llama3Scaling, LongRopeScaling, RopeParameters, RopeScaling, YarnScaling};

pub(super) use file::{POSITIONS_MAX, SIZE_MAX};
pub(super) use layer::WindowRule;
pub(super) use max_model_len::within_limit;
pub(super) use source::{ConfigSource, architecture};

#[cfg(test)]
mod fields_tests;
