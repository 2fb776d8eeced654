//! DeepSeek-OCR and DeepSeek-OCR 2, in the form of their authors (vLLM's `DeepseekOCRForCausalLM`
//! and `DeepseekOCR2ForCausalLM`). The text model is that of DeepSeek MoE: the layers of DeepSeek
//! V2 without latent attention.

use super::wrappers::{PLAIN, sizes};
use super::{
    ConfigError, Family, Fields, ModelConfig, MoeConfig, Scoring, TextModel, VisionFamily, Wrapper,
    deepseek, deepseek_v2,
};

const CLASS: &str = "DeepseekOCRForCausalLM";
const SECOND_CLASS: &str = "DeepseekOCR2ForCausalLM";

/// DeepSeek-OCR.
pub(super) const WRAPPER: Wrapper = Wrapper {
    architecture: CLASS,
    model_type: "deepseek_vl_v2",
    models: "DeepSeek-OCR",
    texts: &[TextModel {
        family: Family {
            architecture: CLASS,
            model_type: "deepseek_v2",
            adjust,
            ..deepseek::FAMILY
        },
        sizes: sizes([129_280, 1_280, 6_848, 12, 10]),
        experts: &[],
    }],
    may_be_flat: false,
    places: &[PLAIN],
    unread: &[
        "model.sam_model",
        "model.vision_model",
        "model.projector",
        "model.image_newline",
        "model.view_seperator",
    ],
    vision: &[VisionFamily::DeepseekOcr],
    audio: None,
};

/// DeepSeek-OCR 2.
pub(super) const SECOND: Wrapper = Wrapper {
    architecture: SECOND_CLASS,
    models: "DeepSeek-OCR 2",
    texts: &[TextModel {
        family: Family {
            architecture: SECOND_CLASS,
            model_type: "deepseek_v2",
            adjust,
            ..deepseek::FAMILY
        },
        sizes: sizes([129_280, 1_280, 6_848, 12, 10]),
        experts: &[],
    }],
    unread: &["model.sam_model", "model.qwen2_model", "model.projector", "model.view_seperator"],
    vision: &[VisionFamily::DeepseekOcr2],
    ..WRAPPER
};

/// Reads `language_config`.
fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    const LATENT: &str = "use_mla";
    let is_latent = fields.flag(LATENT)?;
    if is_latent == Some(true) {
        return Err(fields.invalid(LATENT, "false: latent attention is not supported here"));
    }
    // As in vLLM: without `use_mla`, attention is latent unless these sizes are 0.
    for part in ["qk_nope_head_dim", "qk_rope_head_dim"] {
        if fields.count(part)?.map_or(is_latent.is_none(), |size| size > 0) {
            return Err(fields.invalid(part, "0: latent attention is not supported here"));
        }
    }
    deepseek_v2::require(fields, "scoring_func", "softmax")?;
    deepseek_v2::require(fields, "topk_method", "greedy")?;
    let intermediate_size = fields.size("moe_intermediate_size")?.unwrap_or(1_407);
    let moe = MoeConfig {
        num_experts: fields.required_size("num_experts")?,
        top_k: fields.required_size("num_experts_per_tok")?,
        intermediate_size,
        scoring: Scoring::Softmax,
        renormalize: fields.flag_or("norm_topk_prob", false)?,
        scale: fields.positive("routed_scaling_factor")?.unwrap_or(1.0) as f32,
        shared: deepseek_v2::shared(fields, 0, intermediate_size)?,
        ..MoeConfig::of_dense(config)
    };
    deepseek_v2::set_experts(fields, config, &moe, 0)
}
