//! OLMo 1: HF `OlmoForCausalLM`.
//!
//! Llama with layer norms that have no weights, and a limit of queries, keys and values
//! (<https://arxiv.org/abs/2402.00838>).

use super::{Bias, ConfigError, Defaults, Family, Fields, ModelConfig, NormKind, NormRule, llama};

pub(super) const FAMILY: Family = Family {
    architecture: "OlmoForCausalLM",
    model_type: "olmo",
    models: "OLMo 1",
    defaults: Defaults { norm_eps: 1e-5, ..llama::DEFAULTS },
    mlp_bias: Bias::Never,
    // HF's class has a constant, and no field.
    norm: NormRule { kind: NormKind::LayerUnweighted, eps: "" },
    adjust,
    ..llama::FAMILY
};

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    let clip = fields.positive("clip_qkv")?.map(|clip| clip as f32);
    config.attentions().for_each(|attention| attention.clip = clip);
    Ok(())
}
