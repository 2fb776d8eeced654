//! OLMo 3: HF `Olmo3ForCausalLM`.
//!
//! OLMo 2 with a sliding window in three layers of four. Scaled rotary embeddings are those of the
//! other layers alone (<https://arxiv.org/abs/2512.13961>). So is a base beside the object of
//! parameters.

use super::{Defaults, Family, RopeRule, SlidingRope, WindowRule, llama, olmo2};

pub(super) const FAMILY: Family = Family {
    architecture: "Olmo3ForCausalLM",
    model_type: "olmo3",
    models: "OLMo 3",
    defaults: Defaults { rope_theta: 500_000.0, ..olmo2::FAMILY.defaults },
    windows: WindowRule::AllButEvery { period: 4, field: None },
    rope: RopeRule {
        sliding: Some(SlidingRope { theta: None, default: 500_000.0 }),
        ..llama::ROPE
    },
    ..olmo2::FAMILY
};
