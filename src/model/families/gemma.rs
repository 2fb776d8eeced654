//! Gemma 1: HF `GemmaForCausalLM`.
//!
//! Llama with a gate of GELU (<https://arxiv.org/abs/2403.08295>). Norms multiply by one plus their
//! weight. Embeddings are multiplied by the root of the hidden size.

use super::{
    ConfigError, Defaults, Family, Fields, MlpRule, ModelConfig, NormKind, NormRule, llama,
};

pub(super) const FAMILY: Family = Family {
    architecture: "GemmaForCausalLM",
    model_type: "gemma",
    models: "Gemma 1, CodeGemma",
    defaults: Defaults {
        num_key_value_heads: Some(16),
        head_dim: Some(256),
        max_position_embeddings: 8_192,
        tie_word_embeddings: true,
        ..llama::DEFAULTS
    },
    mlp_bias: super::Bias::Never,
    norm: NormRule { kind: NormKind::RmsPlusOne, eps: "rms_norm_eps" },
    mlp: MlpRule { activation: "gelu_pytorch_tanh", ..llama::FAMILY.mlp },
    adjust,
    ..llama::FAMILY
};

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    causal_only(fields)?;
    scale_embeddings(config);
    // The first checkpoints say `gelu`, but were trained with the approximation.
    if fields.text("hidden_act")? == Some("gelu") {
        config.set_activation("gelu_pytorch_tanh");
    }
    Ok(())
}

/// Multiplies embeddings by the root of the hidden size, as every Gemma does.
pub(super) fn scale_embeddings(config: &mut ModelConfig) {
    config.embedding.multiplier = (config.hidden_size as f64).sqrt() as f32;
}

/// Rejects embedding models of the same architecture.
pub(super) fn causal_only(fields: &Fields) -> Result<(), ConfigError> {
    match fields.flag("use_bidirectional_attention")? {
        Some(true) => Err(fields.invalid("use_bidirectional_attention", "false")),
        _ => Ok(()),
    }
}
