//! MiniMax-Text-01: HF `MiniMaxForCausalLM`.
//!
//! Mixtral with lightning attention (<https://arxiv.org/abs/2501.08313>) in some layers. The stream
//! goes on with normalised hidden states, and each part has factors of its own. `block_size` is the
//! length of the blocks that transformers computes at a time, which changes no result.
//!
//! `rotary_dim` is the number of elements of a head that rotate, 64 of 128 in the published
//! checkpoints. Their own code and vLLM's read it. HF's class does not, and rotates whole heads.

use super::{
    ConfigError, Defaults, Family, Fields, LayerConfig, LayerRule, LightningConfig, MixerKind,
    ModelConfig, NormedResidual, RecurrentConfig, StateLayers, mixtral,
};

pub(super) const FAMILY: Family = Family {
    architecture: "MiniMaxForCausalLM",
    model_type: "minimax",
    models: "MiniMax-Text-01, MiniMax-M1",
    defaults: Defaults {
        num_key_value_heads: Some(8),
        intermediate_size: Some(14_336),
        max_position_embeddings: 131_072,
        ..mixtral::FAMILY.defaults
    },
    layers: LayerRule::Own(layers),
    mixers: &[MixerKind::Attention, MixerKind::Lightning],
    adjust,
    ..mixtral::FAMILY
};

pub(super) fn layers(
    fields: &Fields,
    family: &Family,
    max_position_embeddings: usize,
) -> Result<Vec<LayerConfig>, ConfigError> {
    let by_default = |layer: usize| !layer.is_multiple_of(2);
    let states = StateLayers { name: "linear_attention", by_default: &by_default };
    let num_layers = fields.required_size("num_hidden_layers")?;
    let lightning = |index: usize, layer: &LayerConfig| {
        let (heads, dim) = layer.mixer.attention().map_or((1, 1), |of| (of.num_heads, of.head_dim));
        let place = (index, num_layers);
        let config = LightningConfig::of_layer(place, heads, dim, layer.activation());
        Ok(RecurrentConfig::Lightning(config))
    };
    states.read(fields, family, max_position_embeddings, lightning)
}

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    (mixtral::FAMILY.adjust)(fields, config)?;
    set_rotary_dim(fields, config)?;
    let factor = |field: &str| Ok::<_, ConfigError>(fields.number(field)?.unwrap_or(1.0) as f32);
    config.normed_residual = Some(NormedResidual {
        attention: [factor("full_attn_alpha_factor")?, factor("full_attn_beta_factor")?],
        recurrent: [factor("linear_attn_alpha_factor")?, factor("linear_attn_beta_factor")?],
        feed_forward: [factor("mlp_alpha_factor")?, factor("mlp_beta_factor")?],
    });
    Ok(())
}

fn set_rotary_dim(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    const FIELD: &str = "rotary_dim";
    let Some(rotary_dim) = fields.size(FIELD)? else { return Ok(()) };
    for attention in config.attentions() {
        let head_dim = attention.head_dim;
        if rotary_dim > head_dim || !rotary_dim.is_multiple_of(2) {
            let expected = format!("an even number from 2 to {head_dim}, the width of a head");
            return Err(fields.invalid(FIELD, &expected));
        }
        if let Some(rope) = &mut attention.rope {
            (rope.rotary_dim, rope.frequency_dim) = (rotary_dim, rotary_dim);
        }
    }
    Ok(())
}
