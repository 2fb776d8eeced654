//! Ministral 8B: HF `MinistralForCausalLM`.
//!
//! Mistral whose `layer_types` name the layers with a sliding window
//! (<https://mistral.ai/news/ministraux>).

use super::{Family, mistral};

pub(super) const FAMILY: Family = Family {
    architecture: "MinistralForCausalLM",
    model_type: "ministral",
    models: "Ministral 8B",
    ..mistral::FAMILY
};
