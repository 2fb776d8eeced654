//! Param2: `Param2MoEForCausalLM` of its folder's own code, and of vLLM.
//!
//! Ling 2.0 with a first dense layer by default. One field has the width of all shared experts
//! together. vLLM subtracts the mean of the experts' biases, which changes no choice.

use super::bailing_moe::{self, Rules};
use super::{Family, bailing_moe_v2};

pub(super) const FAMILY: Family = Family {
    architecture: "Param2MoEForCausalLM",
    model_type: "param2moe",
    other_model_types: &["param2_moe", "param2"],
    models: "Param2 17B A2.4B",
    adjust: |fields, config| {
        let rules =
            Rules { first_sparse: 1, num_shared: 1, has_whole_width: true, ..Rules::SECOND };
        bailing_moe::adjust(fields, config, &rules)
    },
    ..bailing_moe_v2::FAMILY
};
