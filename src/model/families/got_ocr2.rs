//! GOT-OCR 2: Qwen2 behind SAM (HF `GotOcr2ForConditionalGeneration`,
//! <https://arxiv.org/abs/2409.01704>).

use super::wrappers::{BESIDE, INSIDE, TOWER, sizes};
use super::{Family, TextModel, VisionFamily, Wrapper, qwen2};

const CLASS: &str = "GotOcr2ForConditionalGeneration";

/// The class.
pub(super) const WRAPPER: Wrapper = Wrapper {
    architecture: CLASS,
    model_type: "got_ocr2",
    models: "GOT-OCR 2",
    texts: &[TextModel {
        family: Family { architecture: CLASS, ..qwen2::FAMILY },
        sizes: sizes([151_936, 4_096, 22_016, 32, 32]),
        experts: &[],
    }],
    may_be_flat: false,
    places: &[BESIDE, INSIDE],
    unread: TOWER,
    vision: &[VisionFamily::GotOcr2],
    audio: None,
};
