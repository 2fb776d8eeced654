//! OLMo 2: HF `Olmo2ForCausalLM`.
//!
//! Llama with norms after attention and MLP instead of before them
//! (<https://arxiv.org/abs/2501.00656>). All query heads of a token have one norm, and all key
//! heads.

use super::{Bias, Defaults, Family, HeadNormRule, LayerNorms, WeightNames, llama};

pub(super) const FAMILY: Family = Family {
    architecture: "Olmo2ForCausalLM",
    model_type: "olmo2",
    models: "OLMo 2",
    defaults: Defaults { norm_eps: 1e-5, ..llama::DEFAULTS },
    mlp_bias: Bias::Never,
    head_norm: HeadNormRule::RmsAcrossHeads,
    names: WeightNames { norms: AFTER, ..llama::WITH_HEAD_NORMS },
    ..llama::FAMILY
};

/// Norms over the outputs of attention and MLP alone.
pub(super) const AFTER: LayerNorms = LayerNorms {
    before_attention: None,
    after_attention: Some("post_attention_layernorm"),
    before_mlp: None,
    after_mlp: Some("post_feedforward_layernorm"),
};
