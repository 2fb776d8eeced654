//! Sarvam 105B: `SarvamMLAForCausalLM` of its folder's own code, and HF `SarvamMLAConfig`, whose
//! models are of the class `DeepseekV3ForCausalLM`.
//!
//! DeepSeek V3 with other defaults, and with one projection of queries.

use super::deepseek_v3::Experts;
use super::{ConfigError, Family, Fields, LatentRule, ModelConfig, deepseek_v2, deepseek_v3};

pub(super) const FAMILY: Family = Family {
    architecture: "SarvamMLAForCausalLM",
    model_type: "sarvam_mla",
    other_model_types: &[],
    models: "Sarvam 105B",
    aliases: &[
        ("n_routed_experts", "num_experts"),
        ("num_local_experts", "num_experts"),
        ("num_shared_experts", "n_shared_experts"),
        ("num_mtp_layers", "num_nextn_predict_layers"),
    ],
    latent: Some(&LatentRule { q_lora_rank: None, ..deepseek_v3::LATENT }),
    adjust,
    ..deepseek_v3::FAMILY
};

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    let defaults = Experts {
        num_experts: 128,
        top_k: 8,
        intermediate_size: 2_048,
        groups: (1, 1),
        scale: 2.5,
    };
    let moe = defaults.read(fields, config)?;
    config.num_nextn_layers = fields.count("num_nextn_predict_layers")?.unwrap_or(0);
    deepseek_v2::set_experts(fields, config, &moe, 1)
}
