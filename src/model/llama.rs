//! Llama 2, 3, 3.1, 3.2, 3.3 and the many models of the same shape: HF `LlamaForCausalLM`.
//!
//! [`super::decoder`] is this family's decoder. The files of the other families name their
//! differences. Meta's models have no biases. `attention_bias` and `mlp_bias` turn them on in
//! descendants.

use super::config::WindowRule;
use super::family::{AttentionNames, Bias, Defaults, Family, GatedMlpNames, WeightNames};

pub(super) const FAMILY: Family = Family {
    architecture: "LlamaForCausalLM",
    model_type: "llama",
    defaults: Defaults {
        num_key_value_heads: None,
        head_dim: None,
        max_position_embeddings: 2_048,
    },
    qkv_bias: Bias::IfSet("attention_bias"),
    o_bias: Bias::IfSet("attention_bias"),
    mlp_bias: Bias::IfSet("mlp_bias"),
    windows: WindowRule::Never,
    names: NAMES,
};

pub(super) const NAMES: WeightNames = WeightNames {
    embed_tokens: "model.embed_tokens",
    layer: "model.layers",
    input_layernorm: "input_layernorm",
    attention: AttentionNames {
        q_proj: "self_attn.q_proj",
        k_proj: "self_attn.k_proj",
        v_proj: "self_attn.v_proj",
        q_norm: None,
        k_norm: None,
        o_proj: "self_attn.o_proj",
    },
    post_attention_layernorm: "post_attention_layernorm",
    mlp: GatedMlpNames {
        gate_proj: "mlp.gate_proj",
        up_proj: "mlp.up_proj",
        down_proj: "mlp.down_proj",
    },
    norm: "model.norm",
    lm_head: "lm_head",
};
