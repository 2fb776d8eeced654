//! Models of late interaction over a model of texts and images: a projection of each of its tokens
//! (<https://arxiv.org/abs/2407.01449>). HF `ColQwen2ForRetrieval`, `ColPaliForRetrieval` and
//! `ColModernVBertForRetrieval`, and vLLM's `ColQwen3`, `OpsColQwen3Model`, `ColQwen3_5` and
//! `ColUltraVBertForRetrieval`. The last one and NVIDIA's `Qwen3VLNemotronEmbedModel` have no
//! projection. HF `UltraVBertModel` is the same model as the last one, and its texts have vectors,
//! too.
//!
//! [`retrieval`](crate::model::config) reads their config.

use super::encoders::{MODERNBERT, ULTRABERT};
use super::wrappers::{
    INSIDE, PARTIAL_AXES_IN_TURNS, QWEN2_VL_SIZES, QWEN2_VL_TEXT, QWEN3_5_SIZES, QWEN3_VL_SIZES,
    QWEN3_VL_TEXT, sizes,
};
use super::{
    ConfigError, Family, Fields, ModelConfig, TextModel, TextPlace, VisionFamily, Wrapper, gemma,
    paligemma, qwen3_5,
};
use crate::model::encoder_class::EncoderHead;

const COL_QWEN2: &str = "ColQwen2ForRetrieval";
const COL_PALI: &str = "ColPaliForRetrieval";
const COL_MODERN: &str = "ColModernVBertForRetrieval";
/// The class that HF's `AutoModel` has for ModernVBERT. As in vLLM, it is served with the
/// projection of ColModernVBERT's authors, whose configs name no class.
const MODERN_VBERT: &str = "ModernVBertModel";
const COL_ULTRA: &str = "ColUltraVBertForRetrieval";
const ULTRA_VBERT: &str = "UltraVBertModel";
const COL_QWEN3: &str = "ColQwen3";
const OPS_COL_QWEN3: &str = "OpsColQwen3Model";
/// Its checkpoints say which tokens a token sees.
pub(in crate::model) const COL_QWEN3_5: &str = "ColQwen3_5";
/// Its config names the pooling.
pub(in crate::model) const NEMOTRON_COL_EMBED: &str = "Qwen3VLNemotronEmbedModel";

/// The projection of HF's classes.
const HEAD: EncoderHead =
    EncoderHead::TokenVectors { module: "embedding_proj_layer", other: None, has_bias: Some(true) };
/// The same, with its name in the checkpoint of ModernVBERT's authors.
const MODERN_HEAD: EncoderHead = EncoderHead::TokenVectors {
    module: "embedding_proj_layer",
    other: Some("model.custom_text_proj"),
    has_bias: Some(true),
};
/// That of the code of authors, of which some have the names of ColPali's.
const OF_AUTHORS: EncoderHead = EncoderHead::TokenVectors {
    module: "custom_text_proj",
    other: Some("embedding_proj_layer"),
    has_bias: None,
};

/// The classes, each with its head.
pub(super) const LATE_INTERACTION: &[(Wrapper, EncoderHead)] = &[
    (COL_QWEN2_CLASS, HEAD),
    (COL_PALI_CLASS, HEAD),
    (COL_MODERN_CLASS, MODERN_HEAD),
    (MODERN_VBERT_CLASS, MODERN_HEAD),
    (COL_ULTRA_CLASS, EncoderHead::TokenStates),
    (ULTRA_VBERT_CLASS, EncoderHead::Vectors),
    (COL_QWEN3_CLASS, OF_AUTHORS),
    (OPS_COL_QWEN3_CLASS, OF_AUTHORS),
    (COL_QWEN3_5_CLASS, OF_AUTHORS),
    (NEMOTRON_COL_EMBED_CLASS, EncoderHead::TokenStates),
];

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

/// ModernBERT with the images of Idefics 3 (<https://arxiv.org/abs/2510.01149>).
const COL_MODERN_CLASS: Wrapper = Wrapper {
    architecture: COL_MODERN,
    model_type: "colmodernvbert",
    models: "ColModernVBERT",
    texts: &[TextModel {
        family: Family { architecture: COL_MODERN, adjust: of_modern, ..MODERNBERT },
        sizes: sizes([50_368, 768, 1_152, 22, 12]),
        experts: &[],
    }],
    may_be_flat: false,
    places: &[
        TextPlace { base: "vlm.text_model", lm_head: "vlm.lm_head" },
        TextPlace { base: "model.text_model", lm_head: "lm_head" },
    ],
    unread: &[
        "vlm.vision_model",
        "vlm.connector",
        "model.vision_model",
        "model.connector",
        "model.custom_text_proj",
        "embedding_proj_layer",
    ],
    vision: &[VisionFamily::Idefics3],
    audio: None,
};

/// The norm behind the embeddings also applies to those of images.
fn of_modern(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    (MODERNBERT.adjust)(fields, config)?;
    config.embedding.is_summed_before_norm = true;
    Ok(())
}

const MODERN_VBERT_CLASS: Wrapper = Wrapper {
    architecture: MODERN_VBERT,
    model_type: "modernvbert",
    models: "ColModernVBERT of its authors",
    texts: &[TextModel {
        family: Family { architecture: MODERN_VBERT, adjust: of_modern, ..MODERNBERT },
        sizes: sizes([50_368, 768, 1_152, 22, 12]),
        experts: &[],
    }],
    ..COL_MODERN_CLASS
};

/// UltraBERT with the images of Idefics 3. The sizes are those of vLLM's `UltraBertConfig`.
const COL_ULTRA_CLASS: Wrapper = Wrapper {
    architecture: COL_ULTRA,
    model_type: "ultravbert",
    models: "ColUltraVBERT",
    texts: &[TextModel {
        family: Family { architecture: COL_ULTRA, other_names: None, ..ULTRABERT },
        sizes: sizes([49_280, 768, 1_024, 24, 6]),
        experts: &[],
    }],
    may_be_flat: false,
    places: &[TextPlace { base: "text_model", lm_head: "lm_head" }],
    unread: &["vision_model", "connector"],
    vision: &[VisionFamily::Idefics3],
    audio: None,
};

/// The sizes are those of HF's `UltrabertConfig`.
const ULTRA_VBERT_CLASS: Wrapper = Wrapper {
    architecture: ULTRA_VBERT,
    models: "UltraVBERT, ColUltraVBERT",
    texts: &[TextModel {
        family: Family { architecture: ULTRA_VBERT, other_names: None, ..ULTRABERT },
        sizes: sizes([32_000, 4_096, 11_008, 32, 32]),
        experts: &[],
    }],
    ..COL_ULTRA_CLASS
};

/// The names of TomoroAI's checkpoints, of ColPali's authors, and of OpenSearch-AI's.
const QWEN3_PLACES: &[TextPlace] = &[
    TextPlace { base: "vlm.model.language_model", lm_head: "vlm.lm_head" },
    TextPlace { base: "model.language_model", lm_head: "lm_head" },
    TextPlace { base: "language_model", lm_head: "lm_head" },
    TextPlace { base: "language_model.model", lm_head: "language_model.lm_head" },
];

/// The modules beside the text model. `mtp` predicts several tokens a step.
const BESIDE_QWEN3: &[&str] = &[
    "visual",
    "model.visual",
    "vlm.model.visual",
    "custom_text_proj",
    "embedding_proj_layer",
    "mtp",
    "model.mtp",
];

const COL_QWEN3_CLASS: Wrapper = Wrapper {
    architecture: COL_QWEN3,
    model_type: "colqwen3",
    models: "tomoro-colqwen3-embed, SauerkrautLM-ColQwen3",
    texts: &[TextModel {
        family: Family { architecture: COL_QWEN3, ..QWEN3_VL_TEXT },
        sizes: QWEN3_VL_SIZES,
        experts: &[],
    }],
    may_be_flat: false,
    places: QWEN3_PLACES,
    unread: BESIDE_QWEN3,
    vision: &[VisionFamily::Qwen3Vl],
    audio: None,
};

const OPS_COL_QWEN3_CLASS: Wrapper = Wrapper {
    architecture: OPS_COL_QWEN3,
    model_type: "ops_colqwen3",
    models: "Ops-Colqwen3",
    texts: &[TextModel {
        family: Family { architecture: OPS_COL_QWEN3, ..QWEN3_VL_TEXT },
        sizes: QWEN3_VL_SIZES,
        experts: &[],
    }],
    ..COL_QWEN3_CLASS
};

const COL_QWEN3_5_CLASS: Wrapper = Wrapper {
    architecture: COL_QWEN3_5,
    model_type: "qwen3_5",
    models: "ColQwen3.5",
    texts: &[TextModel {
        family: Family {
            architecture: COL_QWEN3_5,
            rope: PARTIAL_AXES_IN_TURNS,
            ..qwen3_5::FAMILY
        },
        sizes: QWEN3_5_SIZES,
        experts: &[],
    }],
    vision: &[VisionFamily::Qwen3_5],
    ..COL_QWEN3_CLASS
};

/// Nemotron ColEmbed V2 (<https://arxiv.org/abs/2602.03992>).
const NEMOTRON_COL_EMBED_CLASS: Wrapper = Wrapper {
    architecture: NEMOTRON_COL_EMBED,
    model_type: "qwen3_vl_nemotron_embed",
    models: "Nemotron ColEmbed VL 4B v2 and 8B v2",
    texts: &[TextModel {
        family: Family { architecture: NEMOTRON_COL_EMBED, adjust: of_nemotron, ..QWEN3_VL_TEXT },
        sizes: QWEN3_VL_SIZES,
        experts: &[],
    }],
    places: &[INSIDE],
    // The last norm is in the checkpoint, and applies to nothing.
    unread: &["model.visual", "model.language_model.norm"],
    ..COL_QWEN3_CLASS
};

/// As in the authors' code, attention is to both sides, and the states behind the last layer are
/// not normalised by the last norm. vLLM 0.33 applies that norm.
fn of_nemotron(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    const CAUSAL: &str = "is_causal";
    (QWEN3_VL_TEXT.adjust)(fields, config)?;
    if fields.flag(CAUSAL)? == Some(true) {
        return Err(fields.invalid(CAUSAL, "false: attention of this class is to both sides"));
    }
    config.attentions().for_each(|attention| attention.is_causal = false);
    config.has_final_norm = false;
    Ok(())
}
