//! InternLM 1: `InternLMForCausalLM` of its folders' own code, and of vLLM.
//!
//! Llama with biases of attention.

use super::{Bias, ConfigError, Family, Fields, ModelConfig, RopeScaling, llama};

pub(super) const FAMILY: Family = Family {
    architecture: "InternLMForCausalLM",
    model_type: "internlm",
    models: "InternLM 1",
    qkv_bias: Bias::UnlessUnset("bias"),
    o_bias: Bias::UnlessUnset("bias"),
    mlp_bias: Bias::Never,
    adjust,
    ..llama::FAMILY
};

/// Reads `rotary`, which has a base and a type. The dynamic type scales beyond the context of
/// pretraining alone, by no factor.
fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    let Some(rotary) = fields.nested("rotary")? else { return Ok(()) };
    if !matches!(rotary.text("type")?, None | Some("origin" | "dynamic")) {
        return Err(rotary.invalid("type", "\"origin\" or \"dynamic\""));
    }
    if rotary.number("scaling_factor")?.is_some_and(|factor| factor != 1.0) {
        return Err(rotary.invalid("scaling_factor", "1"));
    }
    let theta = rotary.positive("base")?;
    for rope in config.attentions().flat_map(|attention| &mut attention.rope) {
        rope.theta = theta.unwrap_or(rope.theta);
        rope.scaling = RopeScaling::Default;
    }
    Ok(())
}
