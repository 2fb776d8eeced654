//! Intern-S1, whose tower, projector and images are those of InternVL (vLLM's
//! `InternS1ForConditionalGeneration`).

use super::wrappers::{INSIDE, sizes};
use super::{Family, TextModel, Wrapper, in_tiles, qwen3, qwen3_moe};

const CLASS: &str = "InternS1ForConditionalGeneration";

/// The class.
pub(super) const WRAPPER: Wrapper = Wrapper {
    architecture: CLASS,
    model_type: "interns1",
    models: "Intern-S1, Intern-S1-mini",
    texts: &[
        TextModel {
            family: Family { architecture: CLASS, ..qwen3::FAMILY },
            sizes: sizes([151_936, 4_096, 22_016, 32, 32]),
            experts: &[],
        },
        TextModel {
            family: Family { architecture: CLASS, ..qwen3_moe::FAMILY },
            sizes: sizes([151_936, 2_048, 6_144, 24, 32]),
            experts: &[],
        },
    ],
    places: &[INSIDE],
    ..in_tiles::INTERNVL
};
