//! Poolers: heads that turn hidden states into vectors or classes.
//!
//! A pooler is data beside a [`Backbone`](super::Backbone). `plan` decides which heads a model
//! gets, from its architecture, the files of sentence-transformers (`modules`) and the settings.
//! [`Pooler`] computes a result from the hidden states that it asks for. Its matrices are small
//! beside the backbone, so it computes on the processor, in float64 sums of float32 products. The
//! matrix to the vocabulary is not small, so it is a head on the device ([`VocabularyHead`]).

mod architectures;
mod classifier;
mod classifier_plan;
mod dense;
mod encoder_plan;
mod gguf_modules;
mod load;
mod module_files;
mod module_weights;
mod modules;
mod plan;
mod pooler;
mod poolings;
mod ranking;
mod routes;
mod stage;
mod token_heads;
mod tokens;
mod vocabulary;

use self::poolings::Folded;
pub(super) use self::{
    architectures::{converted, wrapped},
    classifier_plan::ClassifierPlan,
    load::{load, of_vectors},
    plan::{HeadPlan, Origin, PoolerPlan},
};
pub use self::{
    classifier::{Calibration, Classifier, ClassifierActivation, PairInput, SCORE_TOKEN},
    dense::{Dense, DenseActivation, DenseNorm},
    modules::{LayerWeights, LogitScore, SentenceTransformers},
    pooler::{Gathered, Matryoshka, Pooler, PoolerError, PoolerOutput, PoolerRequest},
    poolings::{Pooling, Poolings},
    ranking::RankingTokens,
    stage::{Shortcut, Stage},
    token_heads::TokenHeads,
    vocabulary::{VocabularyHead, WeightPooling},
};
