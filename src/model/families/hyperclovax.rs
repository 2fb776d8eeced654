//! HyperCLOVA X SEED Think: HF `HyperCLOVAXForCausalLM`.
//!
//! Granite with norms after attention and MLP as well as before them. Logits are multiplied by
//! their factor, not divided.

use super::{ConfigError, Family, Fields, LayerNorms, ModelConfig, WeightNames, granite, llama};

pub(super) const FAMILY: Family = Family {
    architecture: "HyperCLOVAXForCausalLM",
    model_type: "hyperclovax",
    models: "HyperCLOVA X SEED Think",
    names: WeightNames {
        norms: LayerNorms {
            after_attention: Some("post_norm1"),
            after_mlp: Some("post_norm2"),
            ..llama::NAMES.norms
        },
        ..llama::NAMES
    },
    adjust,
    ..granite::FAMILY
};

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    let scales: Vec<f32> = config.attentions().map(|attention| attention.scale).collect();
    granite::adjust(fields, config)?;
    if fields.value("attention_multiplier").is_none() {
        config.attentions().zip(scales).for_each(|(attention, scale)| attention.scale = scale);
    }
    config.logits.multiplier = std::mem::replace(&mut config.logits.divisor, 1.0);
    if !fields.flag_or("use_post_norm", true)? {
        config.norms = llama::NAMES.norms;
    }
    Ok(())
}
