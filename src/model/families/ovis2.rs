//! Ovis 2: Qwen2 with a table of visual embeddings (HF `Ovis2ForConditionalGeneration`,
//! <https://arxiv.org/abs/2405.20797>).

use super::wrappers::{INSIDE, sizes};
use super::{Family, TextModel, VisionFamily, Wrapper, qwen2};

const CLASS: &str = "Ovis2ForConditionalGeneration";

/// The class.
pub(super) const WRAPPER: Wrapper = Wrapper {
    architecture: CLASS,
    model_type: "ovis2",
    models: "Ovis 2, in the form of transformers",
    texts: &[TextModel {
        family: Family { architecture: CLASS, ..qwen2::FAMILY },
        sizes: sizes([151_936, 4_096, 22_016, 32, 32]),
        experts: &[],
    }],
    may_be_flat: false,
    places: &[INSIDE],
    unread: &["model.vision_tower", "model.visual_embeddings_table"],
    vision: &[VisionFamily::Ovis2],
    audio: None,
};
