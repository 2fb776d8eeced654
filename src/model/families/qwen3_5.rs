//! Qwen3.5, the dense text models: HF `Qwen3_5ForCausalLM`.
//!
//! Qwen3-Next without experts, and with a module for each projection of the delta rule. Positions
//! of text are the same on the three axes of its rotary embedding, which are then one.

use super::{Defaults, DeltaNetModules, Family, LayerRule, as_read, qwen3_next};

pub(super) const FAMILY: Family = Family {
    architecture: "Qwen3_5ForCausalLM",
    model_type: "qwen3_5_text",
    models: "Qwen3.5, the dense text models",
    defaults: Defaults {
        num_key_value_heads: Some(4),
        intermediate_size: Some(12_288),
        ..qwen3_next::FAMILY.defaults
    },
    layers: LayerRule::Own(|fields, family, positions| {
        qwen3_next::layers(fields, family, positions, DeltaNetModules::ByKind)
    }),
    adjust: as_read,
    ..qwen3_next::FAMILY
};
