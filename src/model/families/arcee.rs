//! Arcee AFM: HF `ArceeForCausalLM`.
//!
//! Llama with squared ReLU without a gate.

use super::{Defaults, Family, MlpNames, MlpRule, WeightNames, llama};

pub(super) const FAMILY: Family = Family {
    architecture: "ArceeForCausalLM",
    model_type: "arcee",
    models: "Arcee AFM",
    defaults: Defaults { max_position_embeddings: 4_096, norm_eps: 1e-5, ..llama::DEFAULTS },
    mlp: MlpRule { is_gated: false, field: "hidden_act", activation: "relu2" },
    names: WeightNames {
        mlp: MlpNames { inner: &["mlp.up_proj"], ..llama::NAMES.mlp },
        ..llama::NAMES
    },
    ..llama::FAMILY
};
