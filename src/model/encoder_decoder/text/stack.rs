//! The parts of a stack around its layers: embeddings before them, and a norm behind them.

use std::sync::Arc;

use burn::tensor::Tensor;
use playhouse_kernels::{AttentionMask, recycle, scale};

use super::super::{FeedForward, Normed, SelfAttention, Stream};
use super::plan::{StackPlan, TextPlan};
use super::positions::PositionTable;
use crate::model::layers::{Embedding, Linear, Norm, distance_biases};
use crate::model::weight_loader::WeightLoader;
use crate::model::{Adapters, ModelError};

/// The parts before and behind the layers.
#[derive(Debug)]
pub(super) struct StackEnds {
    embed_tokens: Arc<Embedding>,
    embed_scale: f32,
    positions: Option<PositionTable>,
    embedding_norm: Option<Norm>,
    final_norm: Option<Norm>,
}

/// The parts of a layer that encoder and decoder have.
#[derive(Debug)]
pub(super) struct CommonParts {
    pub(super) self_attention: Normed<SelfAttention>,
    pub(super) feed_forward: Normed<FeedForward>,
}

impl StackEnds {
    pub(super) fn load(
        loader: &mut WeightLoader<'_>,
        plan: &TextPlan,
        stack: &StackPlan,
        embed_tokens: Arc<Embedding>,
    ) -> Result<Self, ModelError> {
        let (module, shape) = (stack.module, [plan.num_positions, plan.hidden_size]);
        let positions = stack.positions;
        let positions = positions.map(|rule| PositionTable::load(loader, rule, module, shape));
        let positions = positions.transpose()?;
        let mut norm = |name: Option<&str>| {
            let module = name.map(|name| format!("{module}.{name}"));
            let norm = module.map(|name| Norm::load(loader, &name, plan.hidden_size, stack.norm));
            norm.transpose()
        };
        let (embedding_norm, final_norm) = (norm(stack.embedding_norm)?, norm(stack.final_norm)?);
        let embed_scale = stack.embed_scale;
        Ok(Self { embed_tokens, embed_scale, positions, embedding_norm, final_norm })
    }

    /// Returns the embeddings of tokens, `[num_tokens, hidden_size]`.
    pub(super) fn embed(&self, token_ids: &[u32], adapters: Adapters<'_>) -> Tensor<2> {
        let x = self.embed_tokens.forward(token_ids, adapters);
        if self.embed_scale == 1.0 { x } else { scale(x, self.embed_scale) }
    }

    /// Returns the input of the first layer.
    pub(super) fn before_layers(&self, x: Tensor<2>, positions: &[u32]) -> Stream {
        let x = match &self.positions {
            Some(table) => table.added(x, positions),
            None => x,
        };
        match &self.embedding_norm {
            Some(norm) => (norm.forward(x), None),
            None => (x, None),
        }
    }

    /// Returns the states of the stack, `[num_tokens, hidden_size]`.
    pub(super) fn after_layers(&self, stream: Stream) -> Tensor<2> {
        match &self.final_norm {
            Some(norm) => {
                let (normed, sum) = norm.add_forward(stream.0, stream.1);
                recycle(sum);
                normed
            }
            // The last norm is that of the last layer, which leaves no sum open.
            None => stream.0,
        }
    }
}

impl CommonParts {
    /// Loads the parts of the layer `layer`.
    pub(super) fn load(
        loader: &mut WeightLoader<'_>,
        plan: &TextPlan,
        stack: &StackPlan,
        layer: &str,
        mask: AttentionMask,
    ) -> Result<Self, ModelError> {
        let StackPlan { names, attention, .. } = stack;
        let biases = stack
            .distance_biases
            .map(|biases| distance_biases(loader, biases, attention.heads, plan.num_positions));
        let biases = biases.transpose()?;
        let module = format!("{layer}.{}", names.self_attention);
        let own = SelfAttention::load(loader, &module, attention, mask, biases, Linear::load)?;
        let module = stack.feed_forward_of(layer);
        let mlp = FeedForward::load(loader, &module, &stack.feed_forward, Linear::load)?;
        Ok(Self {
            self_attention: normed(loader, stack, layer, names.self_norm, own)?,
            feed_forward: normed(loader, stack, layer, names.feed_forward_norm, mlp)?,
        })
    }

    pub(super) fn mapped_bytes(&self) -> u64 {
        self.self_attention.part.mapped_bytes() + self.feed_forward.part.mapped_bytes()
    }
}

/// Loads the norm `name` of the layer `layer`, around `part`.
pub(super) fn normed<T>(
    loader: &mut WeightLoader<'_>,
    stack: &StackPlan,
    layer: &str,
    name: &str,
    part: T,
) -> Result<Normed<T>, ModelError> {
    let (module, hidden) = (format!("{layer}.{name}"), stack.attention.hidden);
    Normed::at(stack.norm_place, loader, &module, (hidden, stack.norm), part)
}
