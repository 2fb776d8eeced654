//! Nemotron 4 and Minitron: HF `NemotronForCausalLM`.
//!
//! Llama with squared ReLU without a gate (<https://arxiv.org/abs/2402.16819>). Layer norms
//! multiply by one plus their weight. Half of a head rotates.

use super::{
    Defaults, Family, MlpNames, MlpRule, NormKind, NormRule, PositionRule, WeightNames, llama,
};

pub(super) const FAMILY: Family = Family {
    architecture: "NemotronForCausalLM",
    model_type: "nemotron",
    models: "Nemotron 4, Minitron",
    defaults: Defaults { max_position_embeddings: 4_096, norm_eps: 1e-5, ..llama::DEFAULTS },
    norm: NormRule { kind: NormKind::LayerPlusOne, eps: "norm_eps" },
    positions: PositionRule::Rotary { is_interleaved: false, percent: 50 },
    rope: llama::PARTIAL_ROPE,
    mlp: MlpRule { is_gated: false, field: "hidden_act", activation: "relu2" },
    names: WeightNames {
        mlp: MlpNames { inner: &["mlp.up_proj"], ..llama::NAMES.mlp },
        ..llama::NAMES
    },
    ..llama::FAMILY
};
