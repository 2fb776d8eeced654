//! Ling 2.0 and Ring 2.0: `BailingMoeV2ForCausalLM` of their folders' own code, and of vLLM.
//!
//! The first generation with norms over query and key heads, and with DeepSeek V3's router: sigmoid
//! scores, groups, and a bias of each expert (<https://arxiv.org/abs/2510.22115>).

use super::bailing_moe::{self, Rules};
use super::{Defaults, Family};

pub(super) const FAMILY: Family = Family {
    architecture: "BailingMoeV2ForCausalLM",
    other_model_types: &["bailing_moe_v2"],
    models: "Ling 2.0 and Ring 2.0 (mini, flash, 1T)",
    defaults: Defaults {
        num_key_value_heads: Some(4),
        head_dim: Some(128),
        max_position_embeddings: 32_768,
        rope_theta: 600_000.0,
        norm_eps: 1e-6,
        ..bailing_moe::FAMILY.defaults
    },
    adjust: |fields, config| bailing_moe::adjust(fields, config, &Rules::SECOND),
    ..bailing_moe::FAMILY
};
