//! DeepSeek V3.2: HF `DeepseekV32ForCausalLM` (<https://arxiv.org/abs/2512.02556>).
//!
//! DeepSeek V3 with an indexer that chooses `index_topk` tokens for each query. A context of at
//! most as many tokens has all of them chosen, so it is DeepSeek V3. Longer contexts are not
//! served: `max_model_len` is at most `index_topk`, and the indexer is not read.

use super::deepseek_v3::Experts;
use super::{
    ConfigError, Defaults, Family, Fields, LatentRule, LayerConfig, LayerRule, Mixer, ModelConfig,
    deepseek_v2, deepseek_v3, llama, read_alike,
};

pub(super) const FAMILY: Family = Family {
    architecture: "DeepseekV32ForCausalLM",
    model_type: "deepseek_v32",
    other_model_types: &[],
    models: "DeepSeek V3.2, contexts of at most index_topk tokens",
    aliases: &[
        ("n_routed_experts", "num_experts"),
        ("num_experts", "num_experts"),
        ("num_local_experts", "num_experts"),
        ("num_mtp_layers", "num_nextn_predict_layers"),
    ],
    defaults: Defaults { max_position_embeddings: 163_840, ..llama::DEFAULTS },
    latent: Some(&LatentRule { has_rope_interleave: false, ..deepseek_v3::LATENT }),
    layers: LayerRule::Own(read_layers),
    adjust,
    ..deepseek_v3::FAMILY
};

/// The kinds of layers, which are all of this one.
const LAYER_TYPES: &str = "layer_types";
const KIND: &str = "indexed_attention";

/// Reads layers whose contexts are bounded by the indexer's choice.
pub(super) fn read_layers(
    fields: &Fields,
    family: &Family,
    max_position_embeddings: usize,
) -> Result<Vec<LayerConfig>, ConfigError> {
    if !fields.texts(LAYER_TYPES)?.iter().all(|kind| *kind == KIND) {
        return Err(fields.invalid(LAYER_TYPES, &format!("{KIND:?} for each layer")));
    }
    let index_topk = fields.size("index_topk")?.unwrap_or(2_048);
    if index_topk < max_position_embeddings {
        tracing::warn!(
            index_topk,
            max_position_embeddings,
            "contexts are served up to index_topk tokens: the indexer of longer ones is not"
        );
    }
    let fields = fields.without(&[LAYER_TYPES]);
    let mut layers = read_alike(&fields, family, max_position_embeddings)?;
    for layer in &mut layers {
        if let Mixer::Latent(latent) = &mut layer.mixer {
            latent.index_topk = Some(index_topk);
        }
    }
    Ok(layers)
}

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    let defaults = Experts {
        num_experts: 256,
        top_k: 8,
        intermediate_size: 2_048,
        groups: (8, 4),
        scale: 2.5,
    };
    set_experts(fields, config, &defaults)
}

/// Gives experts to the layers that a list names, or to those after the first ones.
pub(super) fn set_experts(
    fields: &Fields,
    config: &mut ModelConfig,
    defaults: &Experts,
) -> Result<(), ConfigError> {
    let moe = defaults.read(fields, config)?;
    config.num_nextn_layers = fields.count("num_nextn_predict_layers")?.unwrap_or(1);
    match fields.flags("mlp_layer_types", ["dense", "sparse"], config.layers.len())? {
        Some(is_sparse) => config.set_experts(fields, &moe, |layer| is_sparse[layer]),
        None => deepseek_v2::set_experts(fields, config, &moe, 3),
    }
}
