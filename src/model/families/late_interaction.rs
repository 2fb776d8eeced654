//! Models of late interaction over a model of texts and images: a projection of each of its tokens
//! (<https://arxiv.org/abs/2407.01449>). HF `ColQwen2ForRetrieval`.
//!
//! [`retrieval`](crate::model::config) reads their config.

use super::wrappers::{QWEN2_VL_SIZES, QWEN2_VL_TEXT};
use super::{Family, TextModel, TextPlace, VisionFamily, Wrapper};
use crate::model::encoder_class::EncoderHead;

const COL_QWEN2: &str = "ColQwen2ForRetrieval";

/// The classes, each with its head.
pub(in crate::model) const LATE_INTERACTION: &[(Wrapper, EncoderHead)] = &[(
    Wrapper {
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
    },
    EncoderHead::TokenVectors { module: "embedding_proj_layer", has_bias: true },
)];
