//! Orion 14B: `OrionForCausalLM` of its folders' own code, and of vLLM.
//!
//! Llama with layer norms (<https://arxiv.org/abs/2401.12246>).

use super::{Bias, Defaults, Family, NormKind, NormRule, llama};

pub(super) const FAMILY: Family = Family {
    architecture: "OrionForCausalLM",
    model_type: "orion",
    models: "Orion 14B",
    defaults: Defaults { max_position_embeddings: 4_096, norm_eps: 1e-5, ..llama::DEFAULTS },
    qkv_bias: Bias::Never,
    o_bias: Bias::Never,
    mlp_bias: Bias::Never,
    // The field has this name, although the norm is another.
    norm: NormRule { kind: NormKind::Layer { has_bias: true }, eps: "rms_norm_eps" },
    ..llama::FAMILY
};
