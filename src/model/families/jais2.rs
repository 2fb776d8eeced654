//! Jais 2: HF `Jais2ForCausalLM`.
//!
//! Llama with layer norms, biases, and squared ReLU without a gate.

use super::{Bias, Defaults, Family, MlpNames, MlpRule, NormKind, NormRule, WeightNames, llama};

pub(super) const FAMILY: Family = Family {
    architecture: "Jais2ForCausalLM",
    model_type: "jais2",
    models: "Jais 2",
    defaults: Defaults {
        intermediate_size: Some(26_624),
        max_position_embeddings: 8_192,
        norm_eps: 1e-5,
        ..llama::DEFAULTS
    },
    qkv_bias: ATTENTION_BIAS,
    o_bias: ATTENTION_BIAS,
    mlp_bias: Bias::UnlessUnset("mlp_bias"),
    norm: NormRule { kind: NormKind::Layer { has_bias: true }, eps: "layer_norm_eps" },
    mlp: MlpRule { is_gated: false, field: "hidden_act", activation: "relu2" },
    names: WeightNames {
        mlp: MlpNames { inner: &["mlp.up_proj"], ..llama::NAMES.mlp },
        ..llama::NAMES
    },
    ..llama::FAMILY
};

const ATTENTION_BIAS: Bias = Bias::UnlessUnset("attention_bias");
