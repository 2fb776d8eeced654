//! The tensors of layers in a model with shared blocks.

use super::{Shapes, Tensors, mamba};
use crate::model::config::{
    AttentionConfig, FeedForward, Mixer, MlpConfig, ModelConfig, ParallelConfig, SharedBlocks,
};
use crate::model::layers::{LayerPlace, Part};
use crate::model::shared_blocks::{
    BLOCK, DOWN, GATE_UP, INPUT_NORM, LINEAR, MAMBA, MLP_ADAPTERS, MLP_NORM, O, QKV, QKV_ADAPTERS,
    low_rank_modules, names_in_users,
};

/// Returns the tensors of layer `index`. Those of a block are in the first layer that uses it.
pub(super) fn of_layer(config: &ModelConfig, index: usize, shared: SharedBlocks) -> Shapes {
    let (layer, hidden) = (&config.layers[index], config.hidden_size);
    let place = LayerPlace { config, index };
    let mut tensors = Tensors::default();
    match (&layer.mixer, &layer.feed_forward) {
        (Mixer::Parallel(ParallelConfig { attention, mamba, .. }), FeedForward::Mlp(mlp)) => {
            let names = names_in_users(config);
            let of_mamba = |name: &str| names.of_layer(index, &format!("{}.{name}", names.mamba));
            mamba::add_2(&mut tensors, mamba, hidden, of_mamba);
            tensors.norm(&place.module(&format!("{MAMBA}.{INPUT_NORM}")), config);
            tensors.part(&Part::new(place.module(LINEAR), hidden), hidden, false);
            add_block(&mut tensors, place, shared, attention, mlp);
        }
        (Mixer::Mamba2(mamba), _) => {
            let of_mamba = |name: &str| place.module(&format!("{}.{name}", config.names.mamba));
            mamba::add_2(&mut tensors, mamba, hidden, of_mamba);
            let norm = config.names.norms.before_attention.unwrap_or(INPUT_NORM);
            tensors.norm(&place.module(norm), config);
        }
        _ => {}
    }
    tensors.0
}

/// Adds the tensors of the use of a block, and those of the block if the layer has them.
fn add_block(
    tensors: &mut Tensors,
    place: LayerPlace<'_>,
    shared: SharedBlocks,
    attention: &AttentionConfig,
    mlp: &MlpConfig,
) {
    let (config, hidden) = (place.config, place.config.hidden_size);
    let (q_size, inner) = (attention.q_size(), mlp.intermediate_size);
    let mut low_rank = |list: &str, inputs: usize, outputs: usize| {
        let [a, b] = low_rank_modules(place, shared, list);
        tensors.weight(&a, &[shared.rank, inputs]);
        tensors.weight(&b, &[outputs, shared.rank]);
    };
    if shared.has_attention_adapters {
        for list in QKV_ADAPTERS {
            low_rank(list, 2 * hidden, q_size);
        }
    }
    low_rank(MLP_ADAPTERS, hidden, 2 * inner);
    if shared.use_of(&config.layers, place.index).1 != place.index {
        return;
    }
    let module = |name: &str| place.module(&format!("{BLOCK}.{name}"));
    let part = |name: &str, outputs| Part::new(module(name), outputs);
    tensors.norm_of(&module(INPUT_NORM), config, 2 * hidden);
    for name in QKV {
        tensors.part(&part(name, q_size), 2 * hidden, false);
    }
    tensors.part(&part(O, hidden), q_size, false);
    tensors.norm(&module(MLP_NORM), config);
    tensors.part(&part(GATE_UP, 2 * inner), hidden, mlp.bias);
    tensors.part(&part(DOWN, hidden), inner, mlp.down_bias);
}
