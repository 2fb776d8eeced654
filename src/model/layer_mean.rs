//! The weighted mean of the hidden states before some layers and behind the last one:
//! `WeightedLayerPooling` of sentence-transformers, as a backbone around another.

use std::sync::Arc;

use burn::tensor::Tensor;
use playhouse_kernels::{add, scale};

use super::pooling::LayerWeights;
use super::{Adapters, Backbone, ModelError, Positions, Step};

/// A backbone whose last hidden states are that mean.
struct LayerMean {
    inner: Arc<dyn Backbone>,
    /// The layers whose inputs count.
    layers: Vec<usize>,
    /// Their weights.
    weights: Vec<f32>,
    /// The weight of the last hidden states.
    last: f32,
}

/// Returns the mean over the layers of `inner`.
///
/// # Errors
/// [`ModelError::Heads`] if the weights are those of another number of layers.
pub(super) fn over(
    inner: Arc<dyn Backbone>,
    weights: LayerWeights,
) -> Result<Arc<dyn Backbone>, ModelError> {
    let LayerWeights { start, mut weights } = weights;
    let end = inner.num_layers();
    match weights.pop() {
        Some(last) if start + weights.len() == end => {
            Ok(Arc::new(LayerMean { inner, layers: (start..end).collect(), weights, last }))
        }
        _ => Err(ModelError::Heads {
            setting: "modules.json",
            value: "WeightedLayerPooling",
            why: "num_hidden_layers is not the number of the model's layers",
        }),
    }
}

impl Backbone for LayerMean {
    fn embed(&self, token_ids: &[u32], adapters: Adapters<'_>) -> Tensor<2> {
        self.inner.embed(token_ids, adapters)
    }

    fn forward(
        &self,
        hidden: Tensor<2>,
        positions: Positions<'_>,
        step: &mut Step<'_>,
    ) -> Tensor<2> {
        let (last, inputs) = self.inner.forward_with_inputs(hidden, positions, step, &self.layers);
        let weighted = inputs.into_iter().zip(&self.weights);
        weighted.fold(scale(last, self.last), |sum, (x, weight)| add(sum, scale(x, *weight)))
    }

    fn short_context(&self) -> Option<usize> {
        self.inner.short_context()
    }

    fn mapped_bytes(&self) -> u64 {
        self.inner.mapped_bytes()
    }
}
