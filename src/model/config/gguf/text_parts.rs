//! The text models of multimodal classes of llama.cpp, as data. A file of its projector has the
//! rest of the class, which is not read.

use super::architecture::Constant::Flag;
use super::architecture::{Architecture, Key};
use super::architectures::{EXPERT_WIDTH, NORMALIZED, NUM_EXPERTS, PLAIN, TOP_K};
use super::sigmoids::unused;
use super::with_states::SECTIONS;

/// Layers that read images of their own.
const DEEP: Key = unused("n_deepstack_layers");

/// Every text model whose class is that of a model for text alone.
pub(super) const TEXT_PARTS: &[Architecture] = &[
    Architecture { name: "qwen2vl", class: "Qwen2ForCausalLM", keys: &[SECTIONS], ..PLAIN },
    Architecture { name: "qwen3vl", class: "Qwen3ForCausalLM", keys: &[SECTIONS, DEEP], ..PLAIN },
    Architecture {
        name: "qwen3vlmoe",
        class: "Qwen3MoeForCausalLM",
        constants: &[("norm_topk_prob", Flag(true))],
        keys: &[NUM_EXPERTS, TOP_K, EXPERT_WIDTH, NORMALIZED, SECTIONS, DEEP],
        ..PLAIN
    },
];
