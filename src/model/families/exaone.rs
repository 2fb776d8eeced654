//! EXAONE 3, 3.5 and Deep: `ExaoneForCausalLM` of their folders' own code, and HF `ExaoneConfig`,
//! whose models are of the class `LlamaForCausalLM`.
//!
//! Llama with other names (<https://arxiv.org/abs/2408.03541>).

use super::{AttentionNames, Defaults, Family, LayerNorms, MlpNames, QkvNames, WeightNames, llama};

pub(super) const FAMILY: Family = Family {
    architecture: "ExaoneForCausalLM",
    model_type: "exaone",
    models: "EXAONE 3.0, EXAONE 3.5, EXAONE Deep",
    aliases: &[
        ("num_layers", "num_hidden_layers"),
        ("layer_norm_epsilon", "rms_norm_eps"),
        ("activation_function", "hidden_act"),
    ],
    defaults: Defaults {
        num_key_value_heads: Some(8),
        intermediate_size: Some(14_336),
        max_position_embeddings: 4_096,
        rope_theta: 500_000.0,
        norm_eps: 1e-5,
        ..llama::DEFAULTS
    },
    names: WeightNames {
        embed_tokens: "transformer.wte",
        layer: "transformer.h",
        norms: LayerNorms {
            before_attention: Some("ln_1"),
            after_attention: None,
            before_mlp: Some("ln_2"),
            after_mlp: None,
        },
        attention: AttentionNames {
            qkv: QkvNames::Separate([
                "attn.attention.q_proj",
                "attn.attention.k_proj",
                "attn.attention.v_proj",
            ]),
            q_norm: None,
            k_norm: None,
            o_proj: "attn.attention.out_proj",
        },
        mlp: MlpNames { inner: &["mlp.c_fc_0", "mlp.c_fc_1"], down_proj: "mlp.c_proj" },
        norm: "transformer.ln_f",
        in_adapters: &[
            ("embed_tokens", "wte"),
            ("layers.", "h."),
            (".self_attn.o_proj", ".attn.attention.out_proj"),
            (".self_attn.", ".attn.attention."),
            (".mlp.gate_proj", ".mlp.c_fc_0"),
            (".mlp.up_proj", ".mlp.c_fc_1"),
            (".mlp.down_proj", ".mlp.c_proj"),
        ],
        ..llama::NAMES
    },
    ..llama::FAMILY
};
