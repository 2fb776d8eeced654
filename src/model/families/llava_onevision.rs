//! LLaVA-OneVision, and the families of its text model.

use super::wrappers::{BESIDE, INSIDE, sizes};
use super::{Family, TextModel, VisionFamily, Wrapper, llama, mistral, qwen2, qwen3};

const CLASS: &str = "LlavaOnevisionForConditionalGeneration";

/// The class, whose images are tiles as those of LLaVA-NeXT.
pub(super) const WRAPPER: Wrapper = Wrapper {
    architecture: CLASS,
    model_type: "llava_onevision",
    models: "LLaVA-OneVision",
    texts: &[
        TextModel {
            family: Family { architecture: CLASS, ..qwen2::FAMILY },
            sizes: sizes([151_936, 4_096, 22_016, 32, 32]),
            experts: &[],
        },
        TextModel {
            family: Family { architecture: CLASS, ..qwen3::FAMILY },
            sizes: sizes([151_936, 4_096, 22_016, 32, 32]),
            experts: &[],
        },
        TextModel {
            family: Family { architecture: CLASS, ..llama::FAMILY },
            sizes: sizes([32_000, 4_096, 11_008, 32, 32]),
            experts: &[],
        },
        TextModel {
            family: Family { architecture: CLASS, ..mistral::FAMILY },
            sizes: sizes([32_000, 4_096, 14_336, 32, 32]),
            experts: &[],
        },
    ],
    vision: &[VisionFamily::LlavaOnevision],
    places: &[BESIDE, INSIDE],
    ..super::in_tiles::LLAVA_NEXT
};
