//! The layers of decoders. Each layer loads its weights by name, and has one `forward` that calls
//! the kernels.

mod attention;
mod embedding;
mod feed_forward;
mod linear;
mod lm_head;
mod mixer;
mod mlp;
mod norm;
mod place;
pub(super) mod rotary;

pub(super) use attention::Attention;
pub(super) use embedding::{Embedding, table as embedding_table};
pub(super) use feed_forward::FeedForwardLayer;
pub(super) use linear::Linear;
pub(super) use lm_head::LinearHead;
pub(super) use mixer::MixerLayer;
pub(super) use mlp::Mlp;
pub(super) use norm::RmsNorm;
pub(super) use place::LayerPlace;
