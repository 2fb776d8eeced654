//! StarCoder2: HF `Starcoder2ForCausalLM`.
//!
//! Llama with layer norms, and an MLP without a gate (<https://arxiv.org/abs/2402.19173>).

use super::{
    Bias, Defaults, Family, MlpNames, MlpRule, NormKind, NormRule, WeightNames, WindowRule, llama,
};

pub(super) const FAMILY: Family = Family {
    architecture: "Starcoder2ForCausalLM",
    model_type: "starcoder2",
    models: "StarCoder2",
    defaults: Defaults {
        num_key_value_heads: Some(2),
        max_position_embeddings: 4_096,
        tie_word_embeddings: true,
        norm_eps: 1e-5,
        ..llama::DEFAULTS
    },
    qkv_bias: BIAS,
    o_bias: BIAS,
    mlp_bias: BIAS,
    windows: WindowRule::IfSet,
    norm: NormRule { kind: NormKind::Layer { has_bias: true }, eps: "norm_epsilon" },
    mlp: MlpRule { is_gated: false, field: "hidden_act", activation: "gelu_pytorch_tanh" },
    names: WeightNames {
        mlp: MlpNames { inner: &["mlp.c_fc"], down_proj: "mlp.c_proj" },
        ..llama::NAMES
    },
    ..llama::FAMILY
};

const BIAS: Bias = Bias::UnlessUnset("use_bias");
