//! dots.ocr: Qwen2 with a tower of its own, in the form of its authors (vLLM's
//! `DotsOCRForCausalLM`). The fields of the text model are beside the others.

use super::wrappers::{PLAIN, sizes};
use super::{Family, TextModel, VisionFamily, Wrapper, qwen2};

const CLASS: &str = "DotsOCRForCausalLM";

/// The class.
pub(super) const WRAPPER: Wrapper = Wrapper {
    architecture: CLASS,
    model_type: "dots_ocr",
    models: "dots.ocr",
    texts: &[TextModel {
        family: Family { architecture: CLASS, ..qwen2::FAMILY },
        sizes: sizes([151_936, 4_096, 22_016, 32, 32]),
        experts: &[],
    }],
    may_be_flat: true,
    places: &[PLAIN],
    unread: &["vision_tower"],
    vision: &[VisionFamily::DotsOcr],
    audio: None,
};
