//! Llama Nemotron Embed VL and Rerank VL: `LlamaNemotronVLModel` and
//! `LlamaNemotronVLForSequenceClassification` of NVIDIA's folders and of vLLM.
//!
//! SigLIP with the projector of InternVL, before a Llama with attention to both sides. A field
//! names the pooling, and one the divisor of logits.

use super::encoders::LLAMA_BIDIREC;
use super::wrappers::sizes;
use super::{Family, TextModel, TextPlace, VisionFamily, Wrapper};
use crate::model::encoder_class::{ClassHead, EncoderHead, PoolingField};

const EMBED: &str = "LlamaNemotronVLModel";
const RERANK: &str = "LlamaNemotronVLForSequenceClassification";

/// The default is that of the authors' config. The accepted ones are those of vLLM.
const POOLING: PoolingField =
    PoolingField { field: "pooling", default: "last", accepted: &["avg", "cls", "last"] };

/// vLLM 0.33 does not read the divisor, which is 1 in published models.
const SCORE: ClassHead = ClassHead {
    has_bias: false,
    temperature: Some("temperature"),
    ..ClassHead::plain("score").pooled_by(POOLING)
};

/// The classes, each with its head.
pub(super) const NEMOTRON_VL: &[(Wrapper, EncoderHead)] =
    &[(EMBED_CLASS, EncoderHead::Pooled(POOLING)), (RERANK_CLASS, EncoderHead::Sequence(SCORE))];

/// The text model is one without an output layer, whose names have no `model`. In the reranker, all
/// is in a `model`. vLLM also accepts the names of a whole language model.
const PLACES: &[TextPlace] = &[
    TextPlace { base: "language_model", lm_head: "language_model.lm_head" },
    TextPlace { base: "model.language_model", lm_head: "model.language_model.lm_head" },
    TextPlace { base: "language_model.model", lm_head: "language_model.lm_head" },
    TextPlace { base: "model.language_model.model", lm_head: "model.language_model.lm_head" },
];

const EMBED_CLASS: Wrapper = Wrapper {
    architecture: EMBED,
    model_type: "llama_nemotron_vl",
    models: "Llama Nemotron Embed VL 1B v2",
    texts: &[TextModel {
        family: Family { architecture: EMBED, ..LLAMA_BIDIREC },
        sizes: sizes([32_000, 4_096, 11_008, 32, 32]),
        experts: &[],
    }],
    may_be_flat: false,
    places: PLACES,
    // The text model of a reranker may have a classifier of its own, which is not used.
    unread: &[
        "vision_model",
        "mlp1",
        "model.vision_model",
        "model.mlp1",
        "language_model.score",
        "model.language_model.score",
    ],
    vision: &[VisionFamily::NemotronVl],
    audio: None,
};

const RERANK_CLASS: Wrapper = Wrapper {
    architecture: RERANK,
    model_type: "llama_nemotron_vl_rerank",
    models: "Llama Nemotron Rerank VL 1B v2",
    texts: &[TextModel {
        family: Family { architecture: RERANK, ..LLAMA_BIDIREC },
        sizes: sizes([32_000, 4_096, 11_008, 32, 32]),
        experts: &[],
    }],
    ..EMBED_CLASS
};
