//! Multimodal classes that read documents, and the families of their text models.

use super::wrappers::{AXES, INSIDE, PARTIAL_AXES, PLAIN, VISUAL, sizes};
use super::{
    Bias, ConfigError, Defaults, Family, Fields, ModelConfig, PositionRule, TextModel,
    VisionFamily, Wrapper, ernie4_5, glm4, qwen3,
};

const GLM_OCR_CLASS: &str = "GlmOcrForConditionalGeneration";
const LIGHTON_OCR_CLASS: &str = "LightOnOcrForConditionalGeneration";
const LIGHTON_OCR_OF_MISTRAL3: &str = "LightOnOCRForConditionalGeneration";
const PADDLEOCR_VL_CLASS: &str = "PaddleOCRVLForConditionalGeneration";

/// GLM-OCR.
pub(super) const GLM_OCR: Wrapper = Wrapper {
    architecture: GLM_OCR_CLASS,
    model_type: "glm_ocr",
    models: "GLM-OCR",
    texts: &[TextModel {
        family: Family {
            architecture: GLM_OCR_CLASS,
            model_type: "glm_ocr_text",
            defaults: Defaults {
                num_key_value_heads: Some(8),
                head_dim: None,
                max_position_embeddings: 131_072,
                norm_eps: 1e-5,
                ..glm4::FAMILY.defaults
            },
            qkv_bias: Bias::Never,
            positions: PositionRule::Rotary { is_interleaved: true, percent: 100 },
            rope: PARTIAL_AXES,
            adjust: glm_ocr,
            ..glm4::FAMILY
        },
        sizes: sizes([59_392, 1_024, 4_096, 16, 16]),
        experts: &[],
    }],
    may_be_flat: false,
    places: &[INSIDE],
    unread: VISUAL,
    vision: &[VisionFamily::GlmOcr],
    audio: None,
};

/// Reads the layers that predict several tokens a step. HF `GlmOcrPreTrainedModel` leaves one out,
/// whatever the config says.
fn glm_ocr(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    config.num_nextn_layers = fields.count("num_nextn_predict_layers")?.unwrap_or(1);
    Ok(())
}

/// The places of LightOnOCR's tower and projector.
const ENCODER: &[&str] = &["model.vision_encoder", "model.vision_projection"];

/// LightOnOCR in the form of transformers.
pub(super) const LIGHTON_OCR: Wrapper = Wrapper {
    architecture: LIGHTON_OCR_CLASS,
    model_type: "lighton_ocr",
    models: "LightOnOCR",
    texts: &[TextModel {
        family: Family { architecture: LIGHTON_OCR_CLASS, ..qwen3::FAMILY },
        sizes: sizes([151_936, 4_096, 22_016, 32, 32]),
        experts: &[],
    }],
    may_be_flat: false,
    places: &[INSIDE],
    unread: ENCODER,
    vision: &[VisionFamily::LightOnOcr],
    audio: None,
};

/// LightOnOCR with the config of Mistral 3, as vLLM reads it.
pub(super) const LIGHTON_OCR_WITH_MISTRAL3: Wrapper = Wrapper {
    architecture: LIGHTON_OCR_OF_MISTRAL3,
    model_type: "mistral3",
    models: "LightOnOCR, the first form",
    texts: &[TextModel {
        family: Family { architecture: LIGHTON_OCR_OF_MISTRAL3, ..qwen3::FAMILY },
        sizes: sizes([151_936, 4_096, 22_016, 32, 32]),
        experts: &[],
    }],
    ..LIGHTON_OCR
};

/// PaddleOCR-VL.
pub(super) const PADDLEOCR_VL: Wrapper = Wrapper {
    architecture: PADDLEOCR_VL_CLASS,
    model_type: "paddleocr_vl",
    models: "PaddleOCR-VL",
    texts: &[TextModel {
        family: Family {
            architecture: PADDLEOCR_VL_CLASS,
            model_type: "paddleocr_vl_text",
            positions: PositionRule::Rotary { is_interleaved: false, percent: 100 },
            rope: AXES,
            adjust: paddleocr_vl,
            ..ernie4_5::FAMILY
        },
        sizes: sizes([103_424, 1_024, 3_072, 18, 16]),
        experts: &[],
    }],
    may_be_flat: true,
    places: &[INSIDE, PLAIN],
    unread: &["visual", "mlp_AR", "model.visual", "model.projector"],
    vision: &[VisionFamily::PaddleOcr],
    audio: None,
};

/// Reads the token that ends a sequence, which HF `PaddleOCRTextConfig` has by default.
fn paddleocr_vl(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    if !fields.has("eos_token_id") {
        config.eos_token_ids = vec![2];
    }
    Ok(())
}
