//! Poolers: heads that turn hidden states into vectors or classes.
//!
//! A pooler is data beside a [`Backbone`](super::Backbone). `plan` decides which heads a model
//! gets, from its architecture, the files of sentence-transformers (`modules`) and the settings.
//! [`Pooler`] computes a result from the hidden states that it asks for. Its matrices are small
//! beside the backbone, so it computes on the processor, in float64 sums of float32 products.

mod architectures;
mod classifier;
mod classifier_plan;
mod dense;
mod load;
mod modules;
mod plan;
mod pooler;
mod tokens;

pub(super) use self::{
    architectures::converted,
    classifier_plan::ClassifierPlan,
    load::load,
    plan::{HeadPlan, Origin, PoolerPlan},
};
pub use self::{
    classifier::{Calibration, Classifier, ClassifierActivation},
    dense::{Dense, DenseActivation},
    modules::SentenceTransformers,
    pooler::{Gathered, Matryoshka, Pooler, PoolerError, PoolerOutput, PoolerRequest},
};
