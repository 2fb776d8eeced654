//! Granite Swash with experts: HF `GraniteMoeSWAForCausalLM`.
//!
//! Granite 3 with experts, which have other names, and Swash's attention.

use super::{
    ExpertNames, Family, LayerRule, MoeNames, WeightNames, granite_moe_shared, granite_swa,
};

pub(super) const FAMILY: Family = Family {
    architecture: "GraniteMoeSWAForCausalLM",
    model_type: "granitemoe_swa",
    models: "Granite Swash with experts",
    windows: granite_swa::WINDOWS,
    layers: LayerRule::Own(granite_swa::layers),
    names: WeightNames {
        moe: MoeNames {
            router: "block_sparse_moe.router",
            experts: ExpertNames::FusedByOutput {
                inner: "block_sparse_moe.experts.gate_up_proj",
                down_proj: "block_sparse_moe.experts.down_proj",
            },
            ..granite_moe_shared::FAMILY.names.moe
        },
        in_adapters: &[],
        ..granite_moe_shared::FAMILY.names
    },
    ..granite_moe_shared::FAMILY
};
