//! The layers that decoders are made of. Each knows its weights by name, loads them, and has one
//! `forward` that calls the kernels.

mod attention;
mod embedding;
mod linear;
mod mlp;
mod norm;
pub(super) mod rotary;

pub(super) use attention::Attention;
pub(super) use embedding::Embedding;
pub(super) use linear::Linear;
pub(super) use mlp::Mlp;
pub(super) use norm::RmsNorm;
