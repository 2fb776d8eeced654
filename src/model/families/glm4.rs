//! GLM-4 of 2025 (0414): HF `Glm4ForCausalLM`.
//!
//! GLM with norms after attention and MLP as well as before them.

use super::{Family, LayerNorms, WeightNames, glm};

pub(super) const FAMILY: Family = Family {
    architecture: "Glm4ForCausalLM",
    model_type: "glm4",
    models: "GLM-4 of 2025 (0414)",
    names: WeightNames {
        norms: LayerNorms {
            before_attention: Some("input_layernorm"),
            after_attention: Some("post_self_attn_layernorm"),
            before_mlp: Some("post_attention_layernorm"),
            after_mlp: Some("post_mlp_layernorm"),
        },
        ..glm::FAMILY.names
    },
    ..glm::FAMILY
};
