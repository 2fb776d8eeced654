//! Phi-3, Phi-3.5 and Phi-4: HF `Phi3ForCausalLM`.
//!
//! Llama with one matrix for queries, keys and values, and one for gate and up. Long contexts have
//! LongRoPE, and Phi-4-mini rotates three quarters of a head (<https://arxiv.org/abs/2404.14219>).
//! The first checkpoints call LongRoPE `su` and `yarn`.

use super::{
    AttentionNames, Bias, Defaults, Family, MlpNames, QkvNames, RopeRule, WeightNames, WindowRule,
    llama,
};

pub(super) const FAMILY: Family = Family {
    architecture: "Phi3ForCausalLM",
    model_type: "phi3",
    models: "Phi-3, Phi-3.5 and Phi-4",
    defaults: Defaults { max_position_embeddings: 4_096, norm_eps: 1e-5, ..llama::DEFAULTS },
    qkv_bias: Bias::Never,
    o_bias: Bias::Never,
    mlp_bias: Bias::Never,
    windows: WindowRule::IfSet,
    names: WeightNames {
        attention: AttentionNames {
            qkv: QkvNames::Stacked("self_attn.qkv_proj"),
            ..llama::NAMES.attention
        },
        mlp: MlpNames { inner: &["mlp.gate_up_proj"], ..llama::NAMES.mlp },
        ..llama::NAMES
    },
    rope: RopeRule { longrope: Some(4_096), ..llama::PARTIAL_ROPE },
    ..llama::FAMILY
};
