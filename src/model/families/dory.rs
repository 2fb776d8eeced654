//! Dory: HF `DoryForCausalLM`, a normalized transformer whose middle layers a token passes several
//! times (<https://arxiv.org/abs/2410.01131>).
//!
//! Hidden states have norms of 1, and a part moves them towards its normalised output. Three layers
//! of four have a window and a rotary embedding of their own, and the output of attention has a
//! gate. As in published checkpoints, attention and MLP are layers of their own, with the names of
//! tensors there.

use serde_json::Value;

use super::{
    AttentionNames, ConfigError, Defaults, Factors, Family, FeedForward, Fields, HeadNormRule,
    LayerConfig, LayerNorms, LayerRule, Mixer, MlpNames, ModelConfig, NgptConfig, NormKind,
    NormRule, Passes, QkvNames, RopeRule, Section, SlidingRope, WeightNames, WindowRule,
    deepseek_v2, llama, read_alike,
};

pub(super) const FAMILY: Family = Family {
    architecture: "DoryForCausalLM",
    model_type: "dory",
    models: "Dory",
    defaults: Defaults {
        num_key_value_heads: Some(4),
        head_dim: Some(256),
        intermediate_size: Some(7_168),
        max_position_embeddings: 8_192,
        rope_theta: 10_000_000.0,
        ..llama::DEFAULTS
    },
    norm: NormRule { kind: NormKind::Length, eps: "" },
    // `layer_types` names the layers with a window.
    windows: WindowRule::AllButEvery { period: 1, field: None },
    rope: RopeRule { sliding: Some(SlidingRope { theta: None, default: 10_000.0 }), ..llama::ROPE },
    layers: LayerRule::Own(layers),
    names: WeightNames {
        embed_tokens: "backbone.embeddings",
        layer: "backbone.layers",
        norms: LayerNorms {
            before_attention: Some("norm"),
            after_attention: None,
            before_mlp: Some("norm"),
            after_mlp: None,
        },
        attention: AttentionNames {
            qkv: QkvNames::Gated {
                qkv: ["mixer.q_proj", "mixer.k_proj", "mixer.v_proj"],
                gate: "mixer.g_proj",
            },
            q_norm: None,
            k_norm: None,
            o_proj: "mixer.o_proj",
        },
        mlp: MlpNames {
            inner: &["mixer.gate_proj", "mixer.up_proj"],
            down_proj: "mixer.down_proj",
        },
        norm: "backbone.norm",
        ..llama::NAMES
    },
    adjust,
    ..llama::FAMILY
};

const TYPES: &str = "layer_types";
const COUNT: &str = "num_hidden_layers";
/// The kinds of layers. The last one is an MLP.
const KINDS: [&str; 3] = ["full_attention", "sliding_attention", "mlp"];
const MLP: usize = 2;

/// The name of a norm without a weight.
const UNNAMED: &str = "";

fn layers(
    fields: &Fields,
    family: &Family,
    max_position_embeddings: usize,
) -> Result<Vec<LayerConfig>, ConfigError> {
    const WINDOW: &str = "sliding_window";
    let kinds = kinds(fields)?;
    let name = |kind: &usize| if *kind == 1 { KINDS[1] } else { KINDS[0] };
    let mut own = fields.with(TYPES, kinds.iter().map(name).map(Value::from).collect());
    match fields.value(WINDOW) {
        Some(_) => {}
        None if fields.has(WINDOW) => return Err(fields.invalid(WINDOW, "a positive integer")),
        None => own = own.with(WINDOW, 1_024.into()),
    }
    let layers = read_alike(&own, family, max_position_embeddings)?;
    let of_kind = |(mut layer, kind): (LayerConfig, usize)| {
        if kind == MLP {
            layer.mixer = Mixer::None;
            if let FeedForward::Mlp(mlp) = &mut layer.feed_forward {
                mlp.inner_norm = Some(UNNAMED);
            }
            return layer;
        }
        layer.feed_forward = FeedForward::None;
        if let Some(attention) = layer.mixer.attention_mut() {
            attention.has_gate = true;
            attention.output_norm = Some(UNNAMED);
            attention.head_norm = Some(HeadNormRule::Unit);
            // The norm of heads makes their mean squares 1, and HF's class their lengths. The
            // factors of queries have the difference for queries, and the scale that of keys.
            attention.scale = (attention.head_dim as f32).recip();
        }
        layer
    };
    Ok(layers.into_iter().zip(kinds).map(of_kind).collect())
}

/// Returns the kinds of layers: attention and an MLP in turns.
fn kinds(fields: &Fields) -> Result<Vec<usize>, ConfigError> {
    let count = fields.required_size(COUNT)?;
    let expected = format!("a list of {count} ({COUNT}): kinds of attention and \"mlp\" in turns");
    let Some(kinds) = fields.layer_kinds(TYPES, &KINDS)? else {
        return Err(fields.missing(TYPES, &expected));
    };
    let is_in_turns = kinds.iter().enumerate().all(|(i, kind)| (*kind == MLP) == (i % 2 == 1));
    match kinds.len() == count && count.is_multiple_of(2) && is_in_turns {
        true => Ok(kinds),
        false => Err(fields.invalid(TYPES, &expected)),
    }
}

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    const GATE: &str = "attention_output_gate_logit_scale_init";
    const LOOPS: &str = "n_recurrent_loops";
    deepseek_v2::require(fields, "recurrent_kv_cache_mode", "per_loop")?;
    let width = config.hidden_size as f64;
    // vLLM's class reads the number, and HF's class has this one.
    let is_other = |scale: f64| (scale / width.sqrt() - 1.0).abs() > 1e-6;
    if fields.number(GATE)?.is_some_and(is_other) {
        return Err(fields.invalid(GATE, "null: the square root of hidden_size"));
    }
    // The classes of transformers and vLLM have other defaults, so these fields have none here.
    let range = fields.required_positive("initializer_range")?;
    let rate = fields.number("ngpt_alpha_init")?.unwrap_or(0.05);
    let heads = config.attentions().next().map_or(1, |attention| attention.head_dim);
    let factors = |tensor, scale: f64| Factors { tensor, scale: scale as f32 };
    config.ngpt = Some(NgptConfig {
        queries: factors("mixer.sqk", (heads as f64).sqrt() / range),
        gate: factors("mixer.s_gate", width.powf(0.25) / range),
        inner: ["mixer.suv_gate", "mixer.suv_up"].map(|tensor| factors(tensor, width.sqrt())),
        rates: ["attn_alpha", "mlp_alpha"].map(|tensor| factors(tensor, rate / range)),
        logits: factors("lm_head.logit_scale", range.recip()),
    });
    let loops = fields.required_size(LOOPS)?;
    config.passes = Passes::read(fields, LOOPS, loops, config.layers.len())?;
    config.passes.section = Some(section(fields, config.layers.len())?);
    config.adapters_refused = Some("transformers has its attention and MLP in one layer");
    Ok(())
}

/// Returns the layers that a token passes several times, of `count` layers, an even number.
fn section(fields: &Fields, count: usize) -> Result<Section, ConfigError> {
    const INPUT: &str = "n_input_layers";
    const RECURRENT: &str = "n_recurrent_layers";
    const OUTPUT: &str = "n_output_layers";
    let start = once(fields, INPUT, count)?;
    let behind = once(fields, OUTPUT, count - start)?;
    let len = count - start - behind;
    match fields.count(RECURRENT)?.unwrap_or(len) == len {
        true => Ok(Section { start, end: start + len }),
        false => {
            let expected =
                format!("{len}: {count} ({COUNT}) - {start} ({INPUT}) - {behind} ({OUTPUT})");
            Err(fields.invalid(RECURRENT, &expected))
        }
    }
}

/// Returns the layers that `field` counts, which a token passes once. They are fewer than `left`,
/// an even number. A part of a layer of HF's class would be in another section.
fn once(fields: &Fields, field: &str, left: usize) -> Result<usize, ConfigError> {
    let expected = format!("an even number below {left}, the layers of the other sections with it");
    match fields.count(field)? {
        Some(count) if count.is_multiple_of(2) && count < left => Ok(count),
        Some(_) => Err(fields.invalid(field, &expected)),
        None => Err(fields.missing(field, &expected)),
    }
}
