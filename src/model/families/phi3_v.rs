//! Phi-3-vision and Phi-3.5-vision, in the form of their authors' code (`Phi3VForCausalLM`,
//! <https://arxiv.org/abs/2404.14219>). transformers has no class of its own. The text model is
//! that of Phi-3, with the parts for images inside of it.

use super::wrappers::sizes;
use super::{Family, TextModel, TextPlace, VisionFamily, Wrapper, phi3};

const CLASS: &str = "Phi3VForCausalLM";

/// Phi-3-vision and Phi-3.5-vision.
pub(super) const PHI3_V: Wrapper = Wrapper {
    architecture: CLASS,
    model_type: "phi3_v",
    models: "Phi-3-vision, Phi-3.5-vision",
    texts: &[TextModel {
        family: Family { architecture: CLASS, model_type: "phi3_v", ..phi3::FAMILY },
        sizes: sizes([32_064, 3_072, 8_192, 32, 32]),
        experts: &[],
    }],
    may_be_flat: true,
    places: &[TextPlace { base: "model", lm_head: "lm_head" }],
    // It may have the embedding of tokens once more.
    unread: &["model.vision_embed_tokens"],
    vision: &[VisionFamily::Phi3V],
    audio: None,
};
