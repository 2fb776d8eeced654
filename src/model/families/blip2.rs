//! BLIP-2: OPT behind learned queries (HF `Blip2ForConditionalGeneration`,
//! <https://arxiv.org/abs/2301.12597>).

use super::wrappers::{BESIDE, sizes};
use super::{Family, TextModel, VisionFamily, Wrapper, opt};

const CLASS: &str = "Blip2ForConditionalGeneration";

/// The class. As in vLLM, its text model is OPT, and not T5.
pub(super) const WRAPPER: Wrapper = Wrapper {
    architecture: CLASS,
    model_type: "blip-2",
    models: "BLIP-2 with OPT",
    texts: &[TextModel {
        family: Family { architecture: CLASS, ..opt::FAMILY },
        sizes: sizes([50_272, 768, 3_072, 12, 12]),
        experts: &[],
    }],
    may_be_flat: false,
    places: &[BESIDE],
    unread: &["vision_model", "query_tokens", "qformer", "language_projection"],
    vision: &[VisionFamily::Blip2],
    audio: None,
};
