//! Hunyuan, the dense models: HF `HunYuanDenseV1ForCausalLM`.
//!
//! Llama with a norm over each query and key head after their rotation. `rope_scaling` of the type
//! `dynamic` with an `alpha` is a larger base, whatever the length.

use super::{
    AttentionNames, Bias, ConfigError, Defaults, Family, Fields, ModelConfig, RopeScaling,
    WeightNames, llama,
};

pub(super) const FAMILY: Family = Family {
    architecture: "HunYuanDenseV1ForCausalLM",
    model_type: "hunyuan_v1_dense",
    models: "Hunyuan, dense",
    defaults: Defaults { norm_eps: 1e-5, ..llama::DEFAULTS },
    mlp_bias: Bias::Never,
    names: WeightNames {
        attention: AttentionNames {
            q_norm: Some("self_attn.query_layernorm"),
            k_norm: Some("self_attn.key_layernorm"),
            ..llama::NAMES.attention
        },
        ..llama::NAMES
    },
    adjust,
    ..llama::FAMILY
};

pub(super) fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    let scaling = match fields.nested("rope_scaling")? {
        Some(scaling) => Some(scaling),
        None => fields.nested("rope_parameters")?,
    };
    let alpha = scaling.map(|scaling| scaling.positive("alpha")).transpose()?.flatten();
    for attention in config.attentions() {
        attention.norms_after_rope = true;
        let dim = attention.head_dim as f64;
        if let (Some(alpha), Some(rope)) = (alpha, &mut attention.rope)
            && matches!(rope.scaling, RopeScaling::Dynamic { .. })
        {
            rope.theta *= alpha.powf(dim / (dim - 2.0));
            rope.scaling = RopeScaling::Default;
        }
    }
    Ok(())
}
