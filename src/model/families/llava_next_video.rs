//! LLaVA-NeXT-Video, and the families of its text model.

use super::wrappers::sizes;
use super::{Family, TextModel, VisionFamily, Wrapper, in_tiles, llama, mistral, qwen2};

const CLASS: &str = "LlavaNextVideoForConditionalGeneration";

/// The class, whose images are those of LLaVA-NeXT.
pub(super) const WRAPPER: Wrapper = Wrapper {
    architecture: CLASS,
    model_type: "llava_next_video",
    models: "LLaVA-NeXT-Video",
    texts: &[
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
        TextModel {
            family: Family { architecture: CLASS, ..qwen2::FAMILY },
            sizes: sizes([151_936, 4_096, 22_016, 32, 32]),
            experts: &[],
        },
    ],
    vision: &[VisionFamily::LlavaNextVideo],
    ..in_tiles::LLAVA_NEXT
};
