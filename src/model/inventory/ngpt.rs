//! The vectors of a normalized transformer.

use super::tensors::Shapes;
use crate::model::config::{Factors, FeedForward, ModelConfig, NgptConfig};

/// Returns the vectors of layer `index`, beside those of its parts.
pub(super) fn of_layer(config: &ModelConfig, ngpt: &NgptConfig, index: usize) -> Shapes {
    let layer = &config.layers[index];
    let [of_attention, of_mlp] = ngpt.rates;
    let mut tensors = Shapes::new();
    let mut add = |factors: Factors, size: usize| {
        tensors.push((config.names.of_layer(index, factors.tensor), vec![size]));
    };
    if let Some(attention) = layer.mixer.attention() {
        add(ngpt.queries, attention.q_size());
        add(ngpt.gate, attention.gate_size());
        add(of_attention, config.hidden_size);
    }
    if let FeedForward::Mlp(mlp) = &layer.feed_forward {
        for factors in ngpt.inner {
            add(factors, mlp.intermediate_size);
        }
        add(of_mlp, config.hidden_size);
    }
    tensors
}
