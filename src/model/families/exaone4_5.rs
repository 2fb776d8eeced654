//! EXAONE 4.5: EXAONE 4 with the tower of Qwen2.5-VL, whose heads share keys and values. Its text
//! has positions of one axis (HF `Exaone4_5_ForConditionalGeneration`).

use super::wrappers::{INSIDE, PLAIN, VISUAL_AND_MTP, sizes};
use super::{Family, TextModel, TextSizes, VisionFamily, Wrapper, exaone4};

const CLASS: &str = "Exaone4_5_ForConditionalGeneration";
const SIZES: TextSizes = sizes([102_400, 4_096, 16_384, 32, 32]);

/// The class.
pub(super) const WRAPPER: Wrapper = Wrapper {
    architecture: CLASS,
    model_type: "exaone4_5",
    models: "EXAONE 4.5",
    texts: &[
        TextModel {
            family: Family { architecture: CLASS, ..exaone4::FAMILY },
            sizes: SIZES,
            experts: &[],
        },
        // The first published configs.
        TextModel {
            family: Family { architecture: CLASS, model_type: "exaone4_5_text", ..exaone4::FAMILY },
            sizes: SIZES,
            experts: &[],
        },
    ],
    may_be_flat: false,
    places: &[INSIDE, PLAIN],
    unread: VISUAL_AND_MTP,
    vision: &[VisionFamily::Exaone4_5],
    audio: None,
};
