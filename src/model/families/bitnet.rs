//! BitNet b1.58: HF `BitNetForCausalLM`.
//!
//! Llama with squared ReLU, and with norms before the output projections of attention and of the
//! MLP. The published weights are ternary (<https://arxiv.org/abs/2402.17764>).

use super::{Bias, ConfigError, Defaults, Family, Fields, MlpRule, ModelConfig, llama};

pub(super) const FAMILY: Family = Family {
    architecture: "BitNetForCausalLM",
    model_type: "bitnet",
    models: "BitNet b1.58 2B4T",
    defaults: Defaults {
        num_key_value_heads: Some(5),
        rope_theta: 500_000.0,
        norm_eps: 1e-5,
        ..llama::DEFAULTS
    },
    mlp_bias: Bias::Never,
    mlp: MlpRule { activation: "relu2", ..llama::FAMILY.mlp },
    adjust,
    ..llama::FAMILY
};

fn adjust(_: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    for attention in config.attentions() {
        attention.output_norm = Some("self_attn.attn_sub_norm");
    }
    config.mlps().for_each(|mlp| mlp.inner_norm = Some("mlp.ffn_sub_norm"));
    Ok(())
}
