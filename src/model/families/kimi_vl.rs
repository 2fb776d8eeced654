//! Kimi-VL and Kimi K2.5: DeepSeek V3 with MoonViT, in the form of their authors (vLLM's
//! `KimiVLForConditionalGeneration` and `KimiK25ForConditionalGeneration`).

use super::wrappers::{BESIDE, sizes};
use super::{Family, TextModel, TextSizes, VisionFamily, Wrapper, deepseek_v3};

const KIMI_VL_CLASS: &str = "KimiVLForConditionalGeneration";
const KIMI_K25_CLASS: &str = "KimiK25ForConditionalGeneration";
/// Those of HF `DeepseekV3Config`.
const SIZES: TextSizes = sizes([129_280, 7_168, 18_432, 61, 128]);

/// Kimi-VL.
pub(super) const KIMI_VL: Wrapper = Wrapper {
    architecture: KIMI_VL_CLASS,
    model_type: "kimi_vl",
    models: "Kimi-VL",
    texts: &[TextModel {
        family: Family { architecture: KIMI_VL_CLASS, ..deepseek_v3::FAMILY },
        sizes: SIZES,
        experts: &[],
    }],
    may_be_flat: false,
    places: &[BESIDE],
    unread: &["vision_tower", "multi_modal_projector"],
    vision: &[VisionFamily::KimiVl],
    audio: None,
};

/// Kimi K2.5.
pub(super) const KIMI_K25: Wrapper = Wrapper {
    architecture: KIMI_K25_CLASS,
    model_type: "kimi_k25",
    models: "Kimi K2.5 and K2.6",
    texts: &[TextModel {
        family: Family { architecture: KIMI_K25_CLASS, ..deepseek_v3::FAMILY },
        sizes: SIZES,
        experts: &[],
    }],
    may_be_flat: false,
    places: &[BESIDE],
    unread: &["vision_tower", "mm_projector"],
    vision: &[VisionFamily::KimiK25],
    audio: None,
};
