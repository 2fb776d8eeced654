//! MiniCPM-V 4.6, whose text model is Qwen3.5 (HF `MiniCPMV4_6ForConditionalGeneration`).

use super::wrappers::{INSIDE, PARTIAL_AXES_IN_TURNS, sizes};
use super::{Family, TextModel, VisionFamily, Wrapper, qwen3_5};

const CLASS: &str = "MiniCPMV4_6ForConditionalGeneration";

/// The class.
pub(super) const WRAPPER: Wrapper = Wrapper {
    architecture: CLASS,
    model_type: "minicpmv4_6",
    models: "MiniCPM-V 4.6",
    texts: &[TextModel {
        family: Family { architecture: CLASS, rope: PARTIAL_AXES_IN_TURNS, ..qwen3_5::FAMILY },
        sizes: sizes([248_320, 4_096, 12_288, 32, 16]),
        experts: &[],
    }],
    may_be_flat: false,
    places: &[INSIDE],
    unread: &[
        "model.vision_tower",
        "model.vpm",
        "model.vit_merger",
        "model.merger",
        "mtp",
        "model.mtp",
    ],
    vision: &[VisionFamily::MiniCpmV],
    audio: None,
};
