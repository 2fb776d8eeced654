//! Bamba: HF `BambaForCausalLM`.
//!
//! Llama with Mamba 2 in the place of attention in most layers
//! (<https://huggingface.co/blog/bamba>). Half of an attention head rotates.

use super::{
    ConfigError, Defaults, Family, Fields, LayerConfig, LayerNorms, LayerRule, Mamba2Fields, Mixer,
    MixerKind, MlpNames, PositionRule, RopeRule, RotaryPart, WeightNames, hybrid, inner_size,
    llama,
};

pub(super) const FAMILY: Family = Family {
    architecture: "BambaForCausalLM",
    model_type: "bamba",
    models: "Bamba",
    defaults: Defaults {
        num_key_value_heads: Some(8),
        max_position_embeddings: 262_144,
        norm_eps: 1e-5,
        ..llama::DEFAULTS
    },
    positions: PositionRule::Rotary { is_interleaved: false, percent: 50 },
    // The class does not read `partial_rotary_factor` beside the parameters.
    rope: RopeRule { part: RotaryPart::Field { name: None, rounds_up: true }, ..llama::ROPE },
    layers: LayerRule::Own(layers),
    mixers: &[MixerKind::Attention, MixerKind::Mamba2],
    names: NAMES,
    ..llama::FAMILY
};

pub(super) const NAMES: WeightNames = WeightNames {
    norms: LayerNorms { before_mlp: Some("pre_ff_layernorm"), ..llama::NAMES.norms },
    mlp: MlpNames {
        inner: &["feed_forward.gate_proj", "feed_forward.up_proj"],
        down_proj: "feed_forward.down_proj",
    },
    mamba: "mamba",
    norm: "model.final_layernorm",
    ..llama::NAMES
};

pub(super) const FIELDS: Mamba2Fields = Mamba2Fields {
    num_heads: ("mamba_n_heads", 128),
    head_dim: ("mamba_d_head", None),
    state_size: ("mamba_d_state", 256),
    num_groups: ("mamba_n_groups", 1),
    conv_kernel: ("mamba_d_conv", 4),
    conv_bias: ("mamba_conv_bias", true),
    in_bias: ("mamba_proj_bias", false),
    out_bias: ("mamba_proj_bias", false),
    activation: ("hidden_act", "silu"),
    norm_eps: Some(("rms_norm_eps", 1e-5)),
};

fn layers(
    fields: &Fields,
    family: &Family,
    max_position_embeddings: usize,
) -> Result<Vec<LayerConfig>, ConfigError> {
    let attention = fields.indices("attn_layer_indices")?;
    let inner = inner_size(fields, ("mamba_expand", 2.0), fields.required_size("hidden_size")?)?;
    let mamba = Mixer::Mamba2(FIELDS.read(fields, Some(inner))?);
    hybrid(fields, family, max_position_embeddings, &mamba, |layer| attention.contains(&layer))
}
