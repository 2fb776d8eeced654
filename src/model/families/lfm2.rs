//! LFM2: HF `Lfm2ForCausalLM`.
//!
//! Most layers have a gated convolution over a few tokens in place of attention
//! (<https://arxiv.org/abs/2511.23404>). The inner width of feed-forward parts is two thirds of the
//! field, rounded up.

use super::{
    AttentionNames, Bias, ConfigError, Defaults, Family, FeedForward, Fields, LayerConfig,
    LayerNorms, LayerRule, MixerKind, MlpNames, MlpRule, ModelConfig, NormRule, QkvNames,
    RecurrentConfig, SIZE_MAX, ShortConvConfig, StateLayers, WeightNames, llama,
};

pub(super) const FAMILY: Family = Family {
    architecture: "Lfm2ForCausalLM",
    model_type: "lfm2",
    models: "LFM2-350M to LFM2-2.6B",
    aliases: &[("tie_embedding", "tie_word_embeddings"), ("block_ff_dim", "intermediate_size")],
    defaults: Defaults {
        num_key_value_heads: Some(8),
        intermediate_size: Some(12_288),
        max_position_embeddings: 128_000,
        tie_word_embeddings: true,
        rope_theta: 1_000_000.0,
        norm_eps: 1e-5,
        ..llama::DEFAULTS
    },
    qkv_bias: Bias::Never,
    o_bias: Bias::Never,
    mlp_bias: Bias::Never,
    layers: LayerRule::Own(layers),
    mixers: &[MixerKind::Attention, MixerKind::ShortConv],
    norm: NormRule { eps: "norm_eps", ..llama::FAMILY.norm },
    // The class has no field for it.
    mlp: MlpRule { field: "", ..llama::FAMILY.mlp },
    names: NAMES,
    adjust,
    ..llama::FAMILY
};

const NAMES: WeightNames = WeightNames {
    norms: LayerNorms {
        before_attention: Some("operator_norm"),
        before_mlp: Some("ffn_norm"),
        ..llama::NAMES.norms
    },
    attention: AttentionNames {
        qkv: QkvNames::Separate(["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"]),
        q_norm: Some("self_attn.q_layernorm"),
        k_norm: Some("self_attn.k_layernorm"),
        o_proj: "self_attn.out_proj",
    },
    mlp: MlpNames { inner: &["feed_forward.w1", "feed_forward.w3"], down_proj: "feed_forward.w2" },
    norm: "model.embedding_norm",
    ..llama::NAMES
};

/// Reads the layers: those of `full_attn_idxs` have attention, and all if the field is absent.
fn layers(
    fields: &Fields,
    family: &Family,
    max_position_embeddings: usize,
) -> Result<Vec<LayerConfig>, ConfigError> {
    let attention = fields.indices("full_attn_idxs")?;
    let has_list = fields.value("full_attn_idxs").is_some();
    let by_default = |layer: usize| has_list && !attention.contains(&layer);
    let states = StateLayers { name: "conv", by_default: &by_default };
    let convolution =
        |_, _: &LayerConfig| Ok(RecurrentConfig::ShortConv(ShortConvConfig::read(fields)?));
    states.read(fields, family, max_position_embeddings, convolution)
}

/// Sets the inner width as `Lfm2MLP` does.
fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    if !fields.flag("block_auto_adjust_ff_dim")?.unwrap_or(true) {
        return Ok(());
    }
    let multiplier = match fields.positive("block_ffn_dim_multiplier")? {
        // Null means that the width is neither multiplied nor rounded.
        None if fields.has("block_ffn_dim_multiplier") => None,
        multiplier => Some(multiplier.unwrap_or(1.0)),
    };
    let multiple = fields.size("block_multiple_of")?.unwrap_or(256);
    for layer in &mut config.layers {
        let FeedForward::Mlp(mlp) = &mut layer.feed_forward else { continue };
        let width = 2 * mlp.intermediate_size / 3;
        // A number above the largest size stays above it, and can be rounded.
        let multiplied = |factor: f64| ((factor * width as f64) as usize).min(2 * SIZE_MAX);
        mlp.intermediate_size = match multiplier {
            None => width,
            Some(factor) => multiplied(factor).next_multiple_of(multiple),
        };
        if !(1..=SIZE_MAX).contains(&mlp.intermediate_size) {
            let expected = format!("a number that makes an inner width from 1 to {SIZE_MAX}");
            return Err(fields.invalid("block_ffn_dim_multiplier", &expected));
        }
    }
    Ok(())
}
