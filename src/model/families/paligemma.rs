//! PaliGemma and PaliGemma 2: HF `PaliGemmaForConditionalGeneration`.
//!
//! Gemma 1 or 2 with images (<https://arxiv.org/abs/2407.07726>). All tokens of a prompt attend to
//! each other.

use super::wrappers::{BESIDE, INSIDE, TOWER, sizes};
use super::{
    ConfigError, Family, Fields, ModelConfig, TextModel, VisionFamily, Wrapper, gemma, gemma2,
};

const CLASS: &str = "PaliGemmaForConditionalGeneration";

pub(super) const WRAPPER: Wrapper = Wrapper {
    architecture: CLASS,
    model_type: "paligemma",
    models: "PaliGemma, PaliGemma 2",
    texts: &[
        TextModel {
            family: Family { architecture: CLASS, adjust: of_gemma, ..gemma::FAMILY },
            sizes: sizes([256_000, 3_072, 24_576, 28, 16]),
            experts: &[],
        },
        TextModel {
            family: Family { architecture: CLASS, adjust: of_gemma2, ..gemma2::FAMILY },
            sizes: sizes([256_000, 2_304, 9_216, 26, 8]),
            experts: &[],
        },
    ],
    may_be_flat: false,
    places: &[BESIDE, INSIDE],
    unread: TOWER,
    vision: &[VisionFamily::PaliGemma],
    audio: None,
};

/// HF `PaliGemmaConfig` sets it in the config of the text model, whose masks it makes itself.
const BIDIRECTIONAL: &[&str] = &["use_bidirectional_attention"];

/// Adjusts Gemma 1 as the text model of PaliGemma.
pub(super) fn of_gemma(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    (gemma::FAMILY.adjust)(&fields.without(BIDIRECTIONAL), config)
}

fn of_gemma2(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    (gemma2::FAMILY.adjust)(&fields.without(BIDIRECTIONAL), config)
}
