//! MiMo 7B: `MiMoForCausalLM` of its folders' own code, and of vLLM.
//!
//! Qwen2 with layers that predict several tokens a step (<https://arxiv.org/abs/2505.07608>). Only
//! `draft_heads` reads them.

use super::{Family, MtpForm, qwen2};

pub(super) const FAMILY: Family = Family {
    architecture: "MiMoForCausalLM",
    model_type: "mimo",
    models: "MiMo 7B",
    mtp: MtpForm::Listed,
    ..qwen2::FAMILY
};
