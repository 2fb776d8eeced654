//! Helium: HF `HeliumForCausalLM`.
//!
//! Llama whose rotary pairs are neighbours (<https://kyutai.org/2025/04/30/helium.html>).

use super::{Bias, Defaults, Family, PositionRule, llama};

pub(super) const FAMILY: Family = Family {
    architecture: "HeliumForCausalLM",
    model_type: "helium",
    models: "Helium",
    defaults: Defaults {
        num_key_value_heads: Some(20),
        head_dim: Some(128),
        max_position_embeddings: 4_096,
        rope_theta: 100_000.0,
        norm_eps: 1e-8,
        ..llama::DEFAULTS
    },
    o_bias: Bias::Never,
    positions: PositionRule::Rotary { is_interleaved: true, percent: 100 },
    ..llama::FAMILY
};
