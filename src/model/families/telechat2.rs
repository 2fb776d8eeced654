//! TeleChat and TeleChat2: `TeleChat2ForCausalLM` of their folders' own code, and of vLLM.
//!
//! Llama with one matrix for keys and values, head by head. The projections that end attention and
//! MLP have biases (<https://arxiv.org/abs/2507.18013>). The authors' code has other frequencies
//! for texts longer than those of the training. vLLM has not, and the context ends there
//! (`seq_length`).

use super::{
    AttentionNames, Bias, ConfigError, Defaults, Family, Fields, MlpRule, ModelConfig, QkvNames,
    WeightNames, llama,
};

pub(super) const FAMILY: Family = Family {
    architecture: "TeleChat2ForCausalLM",
    model_type: "telechat",
    other_model_types: &["telechat2"],
    models: "TeleChat, TeleChat2 (3B to 115B)",
    aliases: &[
        ("n_embed", "hidden_size"),
        ("n_layer", "num_hidden_layers"),
        ("n_head", "num_attention_heads"),
        ("ffn_hidden_size", "intermediate_size"),
        ("layer_norm_epsilon", "rms_norm_eps"),
        ("seq_length", "max_position_embeddings"),
    ],
    defaults: Defaults { max_position_embeddings: 8_192, norm_eps: 1e-5, ..llama::DEFAULTS },
    qkv_bias: Bias::Never,
    o_bias: Bias::Always,
    mlp_bias: Bias::Never,
    // The class has no field for it.
    mlp: MlpRule { is_gated: true, field: "", activation: "silu" },
    names: WeightNames {
        embed_tokens: "transformer.word_embeddings",
        layer: "transformer.h",
        attention: AttentionNames {
            qkv: QkvNames::KeyValues {
                queries: "self_attention.query",
                key_values: "self_attention.key_value",
            },
            q_norm: None,
            k_norm: None,
            o_proj: "self_attention.dense",
        },
        norm: "transformer.ln_f",
        ..llama::NAMES
    },
    adjust,
    ..llama::FAMILY
};

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    for field in ["apply_residual_connection_post_layernorm", "embed_layernorm"] {
        if fields.flag(field)?.unwrap_or(false) {
            return Err(fields.invalid(field, "false"));
        }
    }
    config.mlps().for_each(|mlp| mlp.down_bias = true);
    Ok(())
}
