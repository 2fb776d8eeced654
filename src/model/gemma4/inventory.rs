//! The tensors beside those of other decoders.

use crate::model::config::{FeedForward, Gemma4Config, ModelConfig};
use crate::model::layers::per_layer;

/// The modules of layers: the norms around experts.
pub(super) const POST_MLP_NORM: &str = "post_feedforward_layernorm_1";
pub(super) const EXPERTS_NORM: &str = "pre_feedforward_layernorm_2";
pub(super) const POST_EXPERTS_NORM: &str = "post_feedforward_layernorm_2";
/// The tensor of the router's norm.
pub(super) const ROUTER_SCALE: &str = "router.scale";
/// The factor of a layer's output.
pub(super) const OUTPUT_SCALE: &str = "layer_scalar";

/// Returns the tensors of embeddings of each layer with their shapes.
pub(in crate::model) fn outside(
    config: &ModelConfig,
    gemma4: &Gemma4Config,
) -> Vec<(String, Vec<usize>)> {
    gemma4.per_layer.iter().flat_map(|it| per_layer::tensors(config, it)).collect()
}

/// Returns the tensors of layer `index` with their shapes.
pub(in crate::model) fn of_layer(config: &ModelConfig, index: usize) -> Vec<(String, Vec<usize>)> {
    let (hidden, names) = (config.hidden_size, &config.names);
    let mut tensors = vec![(names.of_layer(index, OUTPUT_SCALE), vec![1])];
    if matches!(config.layers[index].feed_forward, FeedForward::Moe(_)) {
        tensors.push((names.of_layer(index, ROUTER_SCALE), vec![hidden]));
        for norm in [POST_MLP_NORM, EXPERTS_NORM, POST_EXPERTS_NORM] {
            let name = names.of_layer(index, norm);
            tensors.push((format!("{name}.weight"), vec![hidden]));
        }
    }
    tensors
}
