//! The layers of decoders. Each layer loads its weights by name, and has one `forward` that calls
//! the kernels.

mod activation;
mod arrangement;
mod attention;
pub(super) mod delta_net;
mod disentangled;
mod embedding;
mod feed_forward;
pub(super) mod griffin;
mod head_norms;
pub(super) mod kimi_delta;
mod latent;
pub(super) mod lightning;
mod linear;
mod linears;
mod lm_head;
mod low_rank;
mod mamba;
mod mamba2;
mod masked_lm;
mod mixer;
mod mlp;
mod moe;
mod ngpt;
mod norm;
mod padded_head;
mod padding;
pub(super) mod per_layer;
mod place;
mod recurrent;
mod relative_positions;
pub(super) mod rotary;
mod rows;
pub(super) mod short_conv;

pub(super) use activation::{
    XIELU_WEIGHTS, divisor_names, load as load_activation, plain as plain_activation,
};
pub(super) use arrangement::{Arrangement, Part, head_rows, qkv_parts, separated};
pub(super) use attention::Attention;
pub(super) use embedding::{Embedding, table as embedding_table};
pub(super) use feed_forward::FeedForwardLayer;
pub(super) use latent::{KvParts, LatentAttention, LatentParts, QueryParts};
pub(super) use linear::{Linear, by_patches};
pub(super) use linears::linears;
pub(super) use lm_head::LinearHead;
pub(super) use mamba::{Mamba, NORM_NAMES as MAMBA_NORM_NAMES};
pub(super) use mamba2::Mamba2;
pub(super) use masked_lm::{LmTransformPlan, MaskedLm, MaskedLmPlan};
pub(super) use mixer::MixerLayer;
pub(super) use mlp::{Mlp, inner_parts};
pub(super) use moe::{Moe, expert_parts, latent_parts, shared_mlp};
pub(super) use ngpt::Interpolation;
pub(super) use norm::Norm;
pub(super) use padded_head::padded_head;
pub(super) use per_layer::{PerLayerGate, PerLayerInputs};
pub(super) use place::LayerPlace;
pub(super) use recurrent::Recurrent;
pub(super) use relative_positions::load as distance_biases;
pub(super) use rows::{RowMean, normal_share};
