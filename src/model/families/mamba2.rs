//! Mamba 2: HF `Mamba2ForCausalLM`.
//!
//! Layers of a state-space model alone, with a norm over its gated output
//! (<https://arxiv.org/abs/2405.21060>).

use super::{
    ConfigError, Family, Fields, LayerConfig, LayerRule, Mamba2Fields, Mixer, MixerKind,
    inner_size, mamba, mixers_alone,
};

pub(super) const FAMILY: Family = Family {
    architecture: "Mamba2ForCausalLM",
    model_type: "mamba2",
    models: "Mamba 2, Codestral Mamba",
    defaults: mamba::DEFAULTS,
    layers: LayerRule::Own(layers),
    mixers: &[MixerKind::Mamba2],
    ..mamba::FAMILY
};

const FIELDS: Mamba2Fields = Mamba2Fields {
    num_heads: ("num_heads", 128),
    head_dim: ("head_dim", Some(64)),
    state_size: ("state_size", 128),
    num_groups: ("n_groups", 8),
    conv_kernel: ("conv_kernel", 4),
    conv_bias: ("use_conv_bias", true),
    in_bias: ("use_bias", false),
    out_bias: ("use_bias", false),
    activation: ("hidden_act", "silu"),
    norm_eps: Some(("layer_norm_epsilon", 1e-5)),
};

fn layers(fields: &Fields, _: &Family, _: usize) -> Result<Vec<LayerConfig>, ConfigError> {
    let inner = inner_size(fields, ("expand", 2.0), fields.required_size("hidden_size")?)?;
    mixers_alone(fields, &Mixer::Mamba2(FIELDS.read(fields, Some(inner))?))
}
