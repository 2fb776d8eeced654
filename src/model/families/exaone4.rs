//! EXAONE 4: HF `Exaone4ForCausalLM`.
//!
//! OLMo 2's order of norms, with norms over single heads. Where three layers of four have a
//! sliding window, the others have no positions (<https://arxiv.org/abs/2507.11407>).

use super::{
    Bias, ConfigError, Defaults, Family, Fields, ModelConfig, WeightNames, WindowRule, llama, olmo2,
};

pub(super) const FAMILY: Family = Family {
    architecture: "Exaone4ForCausalLM",
    model_type: "exaone4",
    models: "EXAONE 4",
    defaults: Defaults { num_key_value_heads: Some(32), norm_eps: 1e-5, ..llama::DEFAULTS },
    qkv_bias: Bias::Never,
    o_bias: Bias::Never,
    mlp_bias: Bias::Never,
    windows: WindowRule::AllButEvery { period: 4, field: Some("sliding_window_pattern") },
    names: WeightNames { norms: olmo2::AFTER, ..llama::WITH_HEAD_NORMS },
    adjust,
    ..llama::FAMILY
};

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    let is_hybrid = !fields.has("sliding_window") || fields.value("sliding_window").is_some();
    if is_hybrid {
        let full = config.attentions().filter(|attention| attention.sliding_window.is_none());
        full.for_each(|attention| attention.rope = None);
    }
    Ok(())
}
