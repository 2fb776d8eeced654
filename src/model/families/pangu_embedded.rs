//! openPangu Embedded: `PanguEmbeddedForCausalLM` of its folders' own code, and of vLLM.
//!
//! Llama with biases in attention (<https://arxiv.org/abs/2505.22375>).

use super::{Bias, Family, llama};

pub(super) const FAMILY: Family = Family {
    architecture: "PanguEmbeddedForCausalLM",
    model_type: "PanguEmbedded",
    models: "openPangu Embedded 1B and 7B",
    qkv_bias: Bias::IfSet("bias"),
    o_bias: Bias::IfSet("bias"),
    mlp_bias: Bias::Never,
    ..llama::FAMILY
};
