//! Gemma 2: HF `Gemma2ForCausalLM`.
//!
//! Gemma with norms before and after each part of a layer (<https://arxiv.org/abs/2408.00118>). The
//! scores of attention and the logits have caps. Every other layer has a sliding window.

use super::{
    ConfigError, Defaults, Family, Fields, LayerNorms, MlpRule, ModelConfig, WeightNames,
    WindowRule, gemma, llama,
};

pub(super) const FAMILY: Family = Family {
    architecture: "Gemma2ForCausalLM",
    model_type: "gemma2",
    models: "Gemma 2",
    defaults: Defaults { num_key_value_heads: Some(4), ..gemma::FAMILY.defaults },
    windows: WindowRule::AllButEvery { period: 2, field: None },
    mlp: MlpRule { field: "hidden_activation", ..gemma::FAMILY.mlp },
    names: NAMES,
    adjust,
    ..gemma::FAMILY
};

pub(super) const NAMES: WeightNames = WeightNames {
    norms: LayerNorms {
        before_attention: Some("input_layernorm"),
        after_attention: Some("post_attention_layernorm"),
        before_mlp: Some("pre_feedforward_layernorm"),
        after_mlp: Some("post_feedforward_layernorm"),
    },
    ..llama::NAMES
};

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    gemma::causal_only(fields)?;
    common(fields, config)?;
    // A config without the fields has the caps. Null turns them off.
    let cap = |field, default| match fields.has(field) {
        true => fields.positive(field),
        false => Ok(Some(default)),
    };
    let soft_cap = cap("attn_logit_softcapping", 50.0)?.map(|cap| cap as f32);
    config.attentions().for_each(|attention| attention.soft_cap = soft_cap);
    config.logits.soft_cap = cap("final_logit_softcapping", 30.0)?.map(|cap| cap as f32);
    Ok(())
}

/// Reads what Gemma 2 and 3 have in common.
pub(super) fn common(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    gemma::scale_embeddings(config);
    let scalar = fields.positive("query_pre_attn_scalar")?.unwrap_or(256.0);
    config.attentions().for_each(|attention| attention.scale = scalar.powf(-0.5) as f32);
    Ok(())
}
