//! Models with an encoder, and with a decoder whose tokens attend to the encoder's states. Whisper
//! has the layers of BART (<https://arxiv.org/abs/1910.13461>). Those of T5 differ in data alone.

mod attention;
mod block;
mod cross_attention;
mod stack_config;
pub(crate) mod text;

pub(super) use attention::{AttentionBias, AttentionForm, SelfAttention};
pub(super) use block::{FeedForward, FeedForwardForm, NormPlace, Normed, Stream};
pub(super) use cross_attention::{CrossAttention, KvProjection};
pub(super) use stack_config::{LoadLinear, NORM, StackConfig, activation, activation_in};
