//! Falcon-H1: HF `FalconH1ForCausalLM`.
//!
//! Every layer has attention and Mamba 2 side by side (<https://arxiv.org/abs/2507.22448>). Most
//! products have a factor.

use super::{
    Bias, ConfigError, Defaults, Family, FeedForward, Fields, LayerConfig, LayerRule, Mamba2Fields,
    Mamba2Multipliers, Mixer, MixerKind, ModelConfig, ParallelConfig, PositionRule, bamba,
    inner_size, llama, read_alike,
};

pub(super) const FAMILY: Family = Family {
    architecture: "FalconH1ForCausalLM",
    model_type: "falcon_h1",
    models: "Falcon-H1",
    defaults: Defaults {
        num_key_value_heads: Some(8),
        max_position_embeddings: 8_192,
        norm_eps: 1e-5,
        ..llama::DEFAULTS
    },
    mlp_bias: Bias::IfSet("mlp_bias"),
    positions: PositionRule::Rotary { is_interleaved: false, percent: 100 },
    layers: LayerRule::Own(layers),
    mixers: &[MixerKind::Attention, MixerKind::Mamba2],
    names: bamba::NAMES,
    adjust,
    ..llama::FAMILY
};

const FIELDS: Mamba2Fields =
    Mamba2Fields { out_bias: ("projectors_bias", false), norm_eps: None, ..bamba::FIELDS };

fn layers(
    fields: &Fields,
    family: &Family,
    max_position_embeddings: usize,
) -> Result<Vec<LayerConfig>, ConfigError> {
    let inner = match fields.has("mamba_d_ssm") && fields.value("mamba_d_ssm").is_none() {
        true => inner_size(fields, ("mamba_expand", 2.0), fields.required_size("hidden_size")?)?,
        false => fields.size("mamba_d_ssm")?.unwrap_or(1_024),
    };
    let has_norm = fields.flag("mamba_rms_norm")?.unwrap_or(false);
    let with_norm = Mamba2Fields { norm_eps: Some(("rms_norm_eps", 1e-5)), ..FIELDS };
    let mut mamba = if has_norm { with_norm } else { FIELDS }.read(fields, Some(inner))?;
    if let Some(norm) = &mut mamba.norm {
        norm.before_gate = fields.flag_or("mamba_norm_before_gate", true)?;
    }
    let factor = |field| factor(fields, field);
    let projected = fields.numbers("ssm_multipliers", 5)?.unwrap_or_else(|| vec![1.0; 5]);
    let mut of_projected = [1.0; 5];
    of_projected.iter_mut().zip(projected).for_each(|(to, from)| *to = from as f32);
    mamba.multipliers = Mamba2Multipliers {
        input: factor("ssm_in_multiplier")?,
        projected: of_projected,
        output: factor("ssm_out_multiplier")?,
    };
    let attention_multipliers =
        [factor("attention_in_multiplier")?, factor("attention_out_multiplier")?];
    let of_keys = factor("key_multiplier")?;
    let fields = fields.without(&["layer_types", "layers_block_type"]);
    let mut layers = read_alike(&fields, family, max_position_embeddings)?;
    for layer in &mut layers {
        let Some(attention) = layer.mixer.attention() else { continue };
        let mut attention = attention.clone();
        attention.scale *= of_keys;
        let mamba = mamba.clone();
        layer.mixer = Mixer::Parallel(ParallelConfig { attention, attention_multipliers, mamba });
    }
    Ok(layers)
}

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    config.embedding.multiplier = factor(fields, "embedding_multiplier")?;
    config.logits.multiplier = factor(fields, "lm_head_multiplier")?;
    let of_mlp = fields.numbers("mlp_multipliers", 2)?;
    for layer in &mut config.layers {
        if let (FeedForward::Mlp(mlp), Some([gate, output])) =
            (&mut layer.feed_forward, of_mlp.as_deref())
        {
            (mlp.gate_multiplier, mlp.output_multiplier) = (*gate as f32, *output as f32);
        }
    }
    Ok(())
}

fn factor(fields: &Fields, field: &str) -> Result<f32, ConfigError> {
    Ok(fields.number(field)?.unwrap_or(1.0) as f32)
}
