//! A.X K1: HF `AXK1ForCausalLM`.
//!
//! DeepSeek V3 with a norm over the outputs of experts. The published checkpoints have that norm in
//! dense layers, too, where it has no use, and no biases of experts.

use super::deepseek_v3::Experts;
use super::{
    ConfigError, Defaults, Family, Fields, LayerNorms, ModelConfig, OtherNorms, WeightNames,
    deepseek_v2, deepseek_v3, llama,
};

pub(super) const FAMILY: Family = Family {
    architecture: "AXK1ForCausalLM",
    model_type: "axk1",
    other_model_types: &["AXK1"],
    models: "A.X K1",
    defaults: Defaults { max_position_embeddings: 32_768, ..llama::DEFAULTS },
    names: WeightNames {
        norms: LayerNorms { after_mlp: Some("post_mlp_layernorm"), ..llama::NAMES.norms },
        ..llama::NAMES
    },
    adjust,
    ..deepseek_v3::FAMILY
};

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    let defaults = Experts {
        num_experts: 192,
        top_k: 8,
        intermediate_size: 2_048,
        groups: (8, 4),
        scale: 2.5,
    };
    // HF's class does not read it: the checkpoint decides whether there are biases.
    let moe = defaults.read(&fields.without(&["topk_method"]), config)?;
    config.may_lack_correction_bias = true;
    config.other_norms = Some(OtherNorms::OfDense(llama::NAMES.norms));
    config.num_nextn_layers = fields.count("num_nextn_predict_layers")?.unwrap_or(1);
    match fields.flags("mlp_layer_types", ["dense", "sparse"], config.layers.len())? {
        Some(is_sparse) => config.set_experts(fields, &moe, |layer| is_sparse[layer]),
        None => deepseek_v2::set_experts(fields, config, &moe, 1),
    }
}
