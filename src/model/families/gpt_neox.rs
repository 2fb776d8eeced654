//! GPT-NeoX, Pythia, Dolly: HF `GPTNeoXForCausalLM`.
//!
//! Attention and MLP read the same hidden state, each after a norm of its own. A quarter of a head
//! rotates (<https://arxiv.org/abs/2204.06745>).

use super::{
    AttentionNames, Bias, ConfigError, Defaults, Family, Fields, MlpNames, MlpRule, ModelConfig,
    NormKind, NormRule, PositionRule, QkvNames, RopeRule, RotaryPart, WeightNames, llama,
};

pub(super) const FAMILY: Family = Family {
    architecture: "GPTNeoXForCausalLM",
    model_type: "gpt_neox",
    models: "GPT-NeoX, Pythia, Dolly",
    defaults: Defaults { norm_eps: 1e-5, ..llama::DEFAULTS },
    qkv_bias: Bias::UnlessUnset("attention_bias"),
    o_bias: Bias::UnlessUnset("attention_bias"),
    mlp_bias: Bias::Always,
    norm: NormRule { kind: NormKind::Layer { has_bias: true }, eps: "layer_norm_eps" },
    positions: PositionRule::Rotary { is_interleaved: false, percent: 25 },
    // The class does not read `rope_theta` and `partial_rotary_factor` beside the parameters.
    rope: RopeRule {
        theta: "rotary_emb_base",
        part: RotaryPart::Field { name: Some("rotary_pct"), rounds_up: true },
        ..llama::ROPE
    },
    mlp: MlpRule { is_gated: false, field: "hidden_act", activation: "gelu" },
    is_parallel: true,
    names: WeightNames {
        embed_tokens: "gpt_neox.embed_in",
        layer: "gpt_neox.layers",
        attention: AttentionNames {
            qkv: QkvNames::Grouped("attention.query_key_value"),
            q_norm: None,
            k_norm: None,
            o_proj: "attention.dense",
        },
        mlp: MlpNames { inner: &["mlp.dense_h_to_4h"], down_proj: "mlp.dense_4h_to_h" },
        norm: "gpt_neox.final_layer_norm",
        lm_head: "embed_out",
        in_adapters: &[("lm_head", "embed_out")],
        ..llama::NAMES
    },
    adjust,
    ..llama::FAMILY
};

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    config.is_parallel = fields.flag("use_parallel_residual")?.unwrap_or(true);
    Ok(())
}
