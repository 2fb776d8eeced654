//! Mamba: HF `MambaForCausalLM`.
//!
//! Layers of a selective scan alone (<https://arxiv.org/abs/2312.00752>). Nothing bounds the
//! context, so a bound stands in for `max_position_embeddings`.

use super::{
    ConfigError, Defaults, Family, Fields, LayerConfig, LayerNorms, LayerRule, MambaFields, Mixer,
    MixerKind, NormKind, NormRule, PositionRule, WeightNames, llama, mixers_alone,
};

pub(super) const FAMILY: Family = Family {
    architecture: "MambaForCausalLM",
    model_type: "mamba",
    models: "Mamba",
    defaults: Defaults { tie_word_embeddings: true, ..DEFAULTS },
    norm: NormRule { kind: NormKind::Rms, eps: "layer_norm_epsilon" },
    positions: PositionRule::None,
    layers: LayerRule::Own(layers),
    mixers: &[MixerKind::Mamba],
    names: NAMES,
    ..llama::FAMILY
};

pub(super) const DEFAULTS: Defaults =
    Defaults { max_position_embeddings: 1 << 20, norm_eps: 1e-5, ..llama::DEFAULTS };

pub(super) const NAMES: WeightNames = WeightNames {
    embed_tokens: "backbone.embeddings",
    layer: "backbone.layers",
    norms: LayerNorms {
        before_attention: Some("norm"),
        after_attention: None,
        before_mlp: None,
        after_mlp: None,
    },
    mamba: "mixer",
    norm: "backbone.norm_f",
    ..llama::NAMES
};

pub(super) const FIELDS: MambaFields = MambaFields {
    state_size: ("state_size", 16),
    time_step_rank: "time_step_rank",
    conv_kernel: ("conv_kernel", 4),
    inner_size: Some("intermediate_size"),
    expand: ("expand", 2.0),
    conv_bias: ("use_conv_bias", true),
    proj_bias: ("use_bias", false),
};

fn layers(fields: &Fields, _: &Family, _: usize) -> Result<Vec<LayerConfig>, ConfigError> {
    mixers_alone(fields, &Mixer::Mamba(FIELDS.read(fields)?))
}
