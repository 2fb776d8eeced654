//! Models of late interaction over a model of texts and images: a projection of each of its tokens
//! (<https://arxiv.org/abs/2407.01449>). HF `ColQwen2ForRetrieval` and `ColPaliForRetrieval`.
//!
//! [`retrieval`](crate::model::config) reads their config.

use super::wrappers::{QWEN2_VL_SIZES, QWEN2_VL_TEXT, sizes};
use super::{
    ConfigError, Family, Fields, ModelConfig, TextModel, TextPlace, VisionFamily, Wrapper, gemma,
    paligemma,
};
use crate::model::encoder_class::EncoderHead;

const COL_QWEN2: &str = "ColQwen2ForRetrieval";
const COL_PALI: &str = "ColPaliForRetrieval";

/// The projection of HF's classes.
const HEAD: EncoderHead =
    EncoderHead::TokenVectors { module: "embedding_proj_layer", has_bias: true };

/// The classes, each with its head.
pub(in crate::model) const LATE_INTERACTION: &[(Wrapper, EncoderHead)] =
    &[(COL_QWEN2_CLASS, HEAD), (COL_PALI_CLASS, HEAD)];

const COL_QWEN2_CLASS: Wrapper = Wrapper {
    architecture: COL_QWEN2,
    model_type: "colqwen2",
    models: "ColQwen2",
    texts: &[
        TextModel {
            family: Family {
                architecture: COL_QWEN2,
                model_type: "qwen2_vl_text",
                ..QWEN2_VL_TEXT
            },
            sizes: QWEN2_VL_SIZES,
            experts: &[],
        },
        TextModel {
            family: Family {
                architecture: COL_QWEN2,
                model_type: "qwen2_5_vl_text",
                ..QWEN2_VL_TEXT
            },
            sizes: QWEN2_VL_SIZES,
            experts: &[],
        },
    ],
    may_be_flat: true,
    places: &TextPlace::OF_RETRIEVAL,
    unread: &["vlm.visual", "vlm.model.visual", "embedding_proj_layer"],
    vision: &[VisionFamily::Qwen2Vl, VisionFamily::Qwen2_5Vl],
    audio: None,
};

/// The names of transformers 5, of 4 from 4.52 on, and of published checkpoints.
const PALI_PLACES: &[TextPlace] = &[
    TextPlace { base: "vlm.language_model", lm_head: "vlm.lm_head" },
    TextPlace { base: "vlm.model.language_model", lm_head: "vlm.lm_head" },
    TextPlace { base: "vlm.language_model.model", lm_head: "vlm.language_model.lm_head" },
];

const COL_PALI_CLASS: Wrapper = Wrapper {
    architecture: COL_PALI,
    model_type: "colpali",
    models: "ColPali",
    texts: &[TextModel {
        family: Family { architecture: COL_PALI, adjust: of_pali, ..gemma::FAMILY },
        sizes: sizes([256_000, 3_072, 24_576, 28, 16]),
        experts: &[],
    }],
    may_be_flat: false,
    places: PALI_PLACES,
    unread: &[
        "vlm.vision_tower",
        "vlm.multi_modal_projector",
        "vlm.model.vision_tower",
        "vlm.model.multi_modal_projector",
        "embedding_proj_layer",
    ],
    vision: &[VisionFamily::PaliGemma],
    audio: None,
};

/// All tokens of a prompt are the prefix of PaliGemma, also those of a text without an image. Its
/// tokens attend to each other.
fn of_pali(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    paligemma::of_gemma(fields, config)?;
    config.attentions().for_each(|attention| attention.is_causal = false);
    Ok(())
}
