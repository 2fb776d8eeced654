//! The configuration of a model: `config.json` in the forms of transformers 4 and 5, and
//! `generation_config.json`. The metadata of a GGUF file is translated into the same form.

mod altup;
mod causality;
mod error;
mod file;
mod gemma4;
mod generation;
mod gguf;
mod hyper_connections;
mod layer;
mod max_model_len;
mod model;
mod ngpt;
mod ngrams;
mod passes;
mod quantization;
mod retrieval;
mod rope;
mod sentence_class;
mod shared_blocks;
mod short_context;
mod skips;
mod source;
mod thinker;
mod unsupported;
mod wrapped;

pub use altup::AltUpConfig;
pub use error::ConfigError;
pub use gemma4::{Gemma4Config, MediaTokens, PerLayerConfig};
pub use generation::GenerationConfig;
pub use hyper_connections::HyperConfig;
pub use layer::{
    ActivationName, AttentionConfig, DeltaNetConfig, DeltaNetModules, FeedForward, GateClamp,
    GateForm, GriffinConfig, GroupScoring, KimiDeltaConfig, LatentConfig, LayerConfig,
    LightningConfig, Mamba2Config, Mamba2Multipliers, Mamba2Norm, MambaConfig, MambaNorms, Mixer,
    MlpConfig, MoeConfig, ParallelConfig, RecurrentConfig, Scoring, SharedExpert, ShortConvConfig,
    TemperatureConfig,
};
pub(crate) use layer::{
    DisentangledConfig, DistanceBiasConfig, MixerKind, PositionProjection, kinds,
};
pub use model::{EmbeddingConfig, LogitsConfig, ModelConfig, NormConfig};
pub(crate) use model::{NormedResidual, OtherNorms, SumProjection, TABLE_PARTS, TokenTypes};
pub use ngrams::NgramConfig;
pub use rope::{Llama3Scaling, LongRopeScaling, RopeParameters, RopeScaling, YarnScaling};
pub use shared_blocks::SharedBlocks;

pub(crate) use file::Fields;
#[cfg(test)]
pub(in crate::model) use file::fields;
pub(super) use file::{POSITIONS_MAX, SIZE_MAX};
pub(super) use gguf::architectures_of as gguf_architectures;
pub(super) use layer::{
    LightningNames, LowRankQueries, Mamba2Fields, MambaFields, StateLayers, WindowRule, hybrid,
    inner_size, mixers_alone, read_alike,
};
pub(super) use max_model_len::within_limit;
pub(super) use model::{EmbeddingProjections, stored_dtype};
pub(crate) use ngpt::{Factors, NgptConfig};
pub(crate) use passes::{Passes, Section};
pub(crate) use retrieval::INNER_TYPE;
pub(crate) use sentence_class::base_class;
pub(crate) use skips::SkipConnection;
pub(crate) use source::ConfigSource;
pub(super) use source::architecture;
pub(super) use wrapped::Tie;

#[cfg(test)]
mod families_tests;
#[cfg(test)]
mod fields_tests;
#[cfg(test)]
mod latent_tests;
#[cfg(test)]
mod null_tests;
