//! MiniMax-Text-01 and M1 in the form of their authors: `MiniMaxText01ForCausalLM` of vLLM until
//! 0.23.
//!
//! The maths and the names of tensors are those of HF's class, [`minimax`]. The fields have other
//! names, and a list of numbers tells the kinds of layers. The authors' rates of the last layer
//! differ from HF's by a ten-millionth, which changes no result.

use serde_json::Value;

use super::{ConfigError, Family, Fields, LayerConfig, LayerRule, ModelConfig, minimax};

pub(super) const FAMILY: Family = Family {
    architecture: "MiniMaxText01ForCausalLM",
    model_type: "minimax_text_01",
    models: "MiniMax-Text-01 and M1 of their authors",
    aliases: &[
        ("num_local_experts", "num_experts"),
        ("layernorm_full_attention_alpha", "full_attn_alpha_factor"),
        ("layernorm_full_attention_beta", "full_attn_beta_factor"),
        ("layernorm_linear_attention_alpha", "linear_attn_alpha_factor"),
        ("layernorm_linear_attention_beta", "linear_attn_beta_factor"),
        ("layernorm_mlp_alpha", "mlp_alpha_factor"),
        ("layernorm_mlp_beta", "mlp_beta_factor"),
    ],
    layers: LayerRule::Own(layers),
    adjust,
    ..minimax::FAMILY
};

const KINDS: &str = "attn_type_list";

/// The most layers whose kinds are listed, far above any real number.
const LAYERS_MAX: usize = 1 << 16;

fn layers(
    fields: &Fields,
    family: &Family,
    max_position_embeddings: usize,
) -> Result<Vec<LayerConfig>, ConfigError> {
    let count = fields.required_size("num_hidden_layers")?;
    let kinds = match fields.value(KINDS) {
        // By default, all layers have attention.
        None => vec![Value::from("full_attention"); count.min(LAYERS_MAX)],
        Some(list) => kinds(list, count).ok_or_else(|| {
            let expected = format!("a list of {count} (num_hidden_layers) of 0 or 1");
            fields.invalid(KINDS, &expected)
        })?,
    };
    let own = fields.with("layer_types", Value::from(kinds));
    minimax::layers(&own, family, max_position_embeddings)
}

/// Returns the names of kinds: 0 is lightning attention.
fn kinds(list: &Value, count: usize) -> Option<Vec<Value>> {
    let name = |kind: &Value| match kind.as_u64()? {
        0 => Some(Value::from("linear_attention")),
        1 => Some(Value::from("full_attention")),
        _ => None,
    };
    list.as_array().filter(|list| list.len() == count)?.iter().map(name).collect()
}

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    const HEADS: &str = "num_attention_heads";
    (minimax::FAMILY.adjust)(fields, config)?;
    if !fields.flag("postnorm")?.unwrap_or(false) {
        let expected = "true: a stream that goes on before its norm is not supported";
        return Err(fields.invalid("postnorm", expected));
    }
    if fields.count("shared_intermediate_size")?.unwrap_or(0) > 0 {
        let expected = "0: a shared expert that is mixed by its own factor is not supported";
        return Err(fields.invalid("shared_intermediate_size", expected));
    }
    if !fields.required_size(HEADS)?.is_power_of_two() {
        // The rates of other numbers are interpolated.
        return Err(fields.invalid(HEADS, "a power of two"));
    }
    Ok(())
}
