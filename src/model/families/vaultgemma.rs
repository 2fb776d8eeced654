//! VaultGemma: HF `VaultGemmaForCausalLM`.
//!
//! Gemma 2 without norms over the outputs of a layer's parts (<https://arxiv.org/abs/2510.15001>).

use super::{Family, LayerNorms, WeightNames, gemma2};

pub(super) const FAMILY: Family = Family {
    architecture: "VaultGemmaForCausalLM",
    model_type: "vaultgemma",
    models: "VaultGemma",
    names: WeightNames {
        norms: LayerNorms { after_attention: None, after_mlp: None, ..gemma2::NAMES.norms },
        ..gemma2::NAMES
    },
    ..gemma2::FAMILY
};
