//! Queries that a product of low rank computes: vLLM's `Step3TextAttention`
//! (<https://arxiv.org/abs/2412.19255>).

use burn::tensor::Tensor;

use super::{LayerPlace, Linear, Norm, Part};
use crate::model::config::{AttentionConfig, NormConfig};
use crate::model::family::NormKind;
use crate::model::weight_loader::WeightLoader;
use crate::model::{Adapters, ModelError};

/// The second matrix of queries, and the norm before it.
#[derive(Debug)]
pub(super) struct LowRank {
    rank: usize,
    norm: Norm,
    output: Linear,
}

impl LowRank {
    /// Returns queries, keys and values. In `qkv`, the first columns have the low rank.
    pub(super) fn expanded(&self, qkv: Tensor<2>, adapters: Adapters<'_>) -> Tensor<2> {
        let rest = qkv.dims()[1] - self.rank;
        let q = self.norm.forward(qkv.clone().narrow(1, 0, self.rank));
        let q = self.output.forward(q, adapters);
        Tensor::cat(vec![q, qkv.narrow(1, self.rank, rest)], 1)
    }

    /// Returns the bytes of weights that are pages of a file.
    pub(super) fn mapped_bytes(&self) -> u64 {
        self.output.mapped_bytes()
    }

    /// Loads both for the layer at `place`, if its queries have a low rank.
    pub(super) fn load(
        loader: &mut WeightLoader<'_>,
        place: LayerPlace<'_>,
        attention: &AttentionConfig,
    ) -> Result<Option<Self>, ModelError> {
        let Some(config) = attention.low_rank else { return Ok(None) };
        let norm = NormConfig { kind: NormKind::Rms, ..place.config.norm };
        let output = [Part::new(place.module(config.output), attention.q_size())];
        Ok(Some(Self {
            rank: config.rank,
            norm: Norm::load(loader, &place.module(config.norm), config.rank, norm)?,
            output: Linear::load(loader, &output, config.rank, false)?,
        }))
    }
}
