//! Gemma 3n, text only: HF `Gemma3nForCausalLM`.
//!
//! Gemma 3 with several residual streams, and embeddings of each layer
//! (<https://ai.google.dev/gemma/docs/gemma-3n>). The last layers read the keys and values of
//! earlier ones. The first layers use few of their inner activations. The decoder is
//! `crate::model::gemma3n`.

use super::{
    AltUpConfig, Bias, ConfigError, Defaults, Family, FeedForward, Fields, HeadNormRule,
    ModelConfig, NormKind, NormRule, PerLayerConfig, WindowRule, gemma, gemma3,
};

pub(super) const FAMILY: Family = Family {
    architecture: "Gemma3nForCausalLM",
    model_type: "gemma3n_text",
    models: "Gemma 3n, text only",
    defaults: Defaults {
        num_key_value_heads: Some(2),
        max_position_embeddings: 32_768,
        ..gemma3::FAMILY.defaults
    },
    qkv_bias: Bias::IfSet("attention_bias"),
    o_bias: Bias::IfSet("attention_bias"),
    windows: WindowRule::AllButEvery { period: 5, field: None },
    norm: NormRule { kind: NormKind::Rms, eps: "rms_norm_eps" },
    head_norm: HeadNormRule::Rms,
    adjust,
    ..gemma3::FAMILY
};

/// The default share of inner activations that the first layers of a deep model do not use.
const SPARSITY: f64 = 0.95;
const SPARSE_LAYERS: usize = 10;

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    gemma::scale_embeddings(config);
    let has_window = fields.has("sliding_window");
    for attention in config.attentions() {
        attention.scale = 1.0;
        attention.normalizes_values = true;
        if let Some(window) = attention.sliding_window.as_mut().filter(|_| !has_window) {
            *window = 512;
        }
    }
    config.logits.soft_cap = match fields.has("final_logit_softcapping") {
        true => fields.positive("final_logit_softcapping")?.map(|cap| cap as f32),
        false => Some(30.0),
    };
    share_keys(fields, config, 15)?;
    set_sparsity(fields, config)?;
    let num_inputs = fields.size("altup_num_inputs")?.unwrap_or(4);
    let active = fields.count("altup_active_idx")?.unwrap_or(0);
    if num_inputs > 64 {
        return Err(fields.invalid("altup_num_inputs", "an integer from 1 to 64"));
    }
    if active >= num_inputs {
        let expected = format!("below altup_num_inputs, {num_inputs}");
        return Err(fields.invalid("altup_active_idx", &expected));
    }
    config.altup = Some(AltUpConfig {
        num_inputs,
        active,
        scales_output: fields.flag_or("altup_correct_scale", true)?,
        laurel_rank: fields.size("laurel_rank")?.unwrap_or(64),
        is_stacked: false,
        per_layer: PerLayerConfig {
            width: fields.size("hidden_size_per_layer_input")?.unwrap_or(256),
            vocab: Some(fields.size("vocab_size_per_layer_input")?.unwrap_or(262_144)),
        },
    });
    Ok(())
}

/// Gives each of the last layers the keys and values of the last layer of its kind that has its
/// own. `default` is the number of those layers without a field.
pub(super) fn share_keys(
    fields: &Fields,
    config: &mut ModelConfig,
    default: usize,
) -> Result<(), ConfigError> {
    const FIELD: &str = "num_kv_shared_layers";
    let count = config.layers.len();
    let shared = fields.count(FIELD)?.unwrap_or(default);
    let first = count.saturating_sub(shared);
    let windows: Vec<_> = config.attentions().map(|attention| attention.sliding_window).collect();
    for (index, attention) in config.attentions().enumerate().skip(first) {
        let mut owners = windows[..first].iter();
        let source = owners.rposition(|window| *window == windows[index]);
        let Some(source) = source else {
            let expected =
                format!("fewer layers, as layer {index} needs an earlier one of its kind");
            return Err(fields.invalid(FIELD, &expected));
        };
        attention.kv_from = Some(source);
    }
    Ok(())
}

/// Reads the share of inner activations that each layer does not use.
fn set_sparsity(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    const FIELD: &str = "activation_sparsity_pattern";
    let count = config.layers.len();
    let pattern = match fields.value(FIELD) {
        Some(value) => value
            .as_array()
            .filter(|list| list.len() == count)
            .and_then(|list| list.iter().map(|share| share.as_f64()).collect::<Option<Vec<_>>>())
            .filter(|list| list.iter().all(|share| (0.0..1.0).contains(share)))
            .ok_or_else(|| {
                fields.invalid(FIELD, &format!("a list of {count} numbers from 0 to below 1"))
            })?,
        None if count > SPARSE_LAYERS => {
            (0..count).map(|layer| if layer < SPARSE_LAYERS { SPARSITY } else { 0.0 }).collect()
        }
        None => vec![0.0; count],
    };
    for (layer, share) in config.layers.iter_mut().zip(pattern) {
        if let FeedForward::Mlp(mlp) = &mut layer.feed_forward {
            mlp.sparsity = (share > 0.0).then_some(share);
        }
    }
    Ok(())
}
