//! BioGPT: HF `BioGptForCausalLM`.
//!
//! OPT with GELU and scaled embeddings (<https://arxiv.org/abs/2210.10341>). HF's class does not
//! read `layer_norm_eps`.

use super::{
    Bias, ConfigError, Defaults, Family, Fields, MlpRule, ModelConfig, WeightNames, gemma, opt,
};

pub(super) const FAMILY: Family = Family {
    architecture: "BioGptForCausalLM",
    model_type: "biogpt",
    models: "BioGPT",
    aliases: &[],
    defaults: Defaults {
        intermediate_size: Some(4_096),
        max_position_embeddings: 1_024,
        ..opt::FAMILY.defaults
    },
    qkv_bias: Bias::Always,
    o_bias: Bias::Always,
    mlp_bias: Bias::Always,
    mlp: MlpRule { is_gated: false, field: "hidden_act", activation: "gelu" },
    names: WeightNames {
        embed_tokens: "biogpt.embed_tokens",
        embed_positions: "biogpt.embed_positions",
        layer: "biogpt.layers",
        norm: "biogpt.layer_norm",
        lm_head: "output_projection",
        ..opt::FAMILY.names
    },
    adjust,
    ..opt::FAMILY
};

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    config.embedding.learned_positions = Some(opt::OFFSET);
    if fields.flag_or("scale_embedding", true)? {
        gemma::scale_embeddings(config);
    }
    Ok(())
}
