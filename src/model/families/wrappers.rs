//! Multimodal classes, and the families of their text models.
//!
//! A class has a text model of a family in this folder. Its entry names the modules of the text
//! model, and those of all other parts: HF `_checkpoint_conversion_mapping` and
//! `conversion_mapping.py`. Positions of text are the same on all axes of a rotary embedding with
//! several (mrope), which are then one.

use super::{
    AxesRule, Bias, ConfigError, Defaults, ExpertNames, Family, Fields, ModelConfig, MoeConfig,
    MoeNames, PositionRule, RopeRule, TextModel, TextPlace, TextSizes, VisionFamily, WeightNames,
    WindowRule, Wrapper, aria, as_read, blip2, deepseek_ocr, dots_ocr, exaone4_5, gemma3, gemma3n,
    gemma4, gemma4_unified, glm4, glm4_moe, got_ocr2, granite, granite_speech, hearing, in_tiles,
    interns1, kimi_vl, llama, llama4, llava_next_video, llava_onevision, minicpmv, ministral3,
    mistral, mistral4, molmo2, omni, ovis2, paligemma, phi3_v, phi4_multimodal, qwen2, qwen2_moe,
    qwen3, qwen3_5, qwen3_5_moe, qwen3_moe, qwen4_exp, readers,
};

/// transformers 5, and 4 from 4.52 on.
pub(super) const INSIDE: TextPlace = TextPlace::INSIDE;
/// A whole text model beside the other parts: older checkpoints, and those that transformers 5
/// writes for older classes.
pub(super) const BESIDE: TextPlace =
    TextPlace { base: "language_model.model", lm_head: "language_model.lm_head" };
/// The text model of a model that also speaks, and of Qwen3-ASR as published.
pub(super) const IN_THINKER: TextPlace =
    TextPlace { base: "thinker.model", lm_head: "thinker.lm_head" };
/// The names of a text model alone.
pub(super) const PLAIN: TextPlace = TextPlace { base: "model", lm_head: "lm_head" };

/// A vision tower and a projector, beside the text model or inside of `model`.
pub(super) const TOWER: &[&str] =
    &["vision_tower", "multi_modal_projector", "model.vision_tower", "model.multi_modal_projector"];
/// The vision tower of Qwen and GLM.
pub(super) const VISUAL: &[&str] = &["visual", "model.visual"];

/// The multimodal classes of which the text model is served.
pub(in crate::model) const WRAPPERS: &[Wrapper] = &[
    Wrapper {
        architecture: GEMMA3,
        model_type: "gemma3",
        models: "Gemma 3 from 4B on, MedGemma",
        texts: &[TextModel {
            family: Family { architecture: GEMMA3, adjust: gemma3, ..gemma3::FAMILY },
            sizes: sizes([262_208, 2_304, 9_216, 26, 8]),
            experts: &[],
        }],
        may_be_flat: false,
        places: &[BESIDE, INSIDE],
        unread: TOWER,
        vision: &[VisionFamily::Gemma3],
        audio: None,
    },
    Wrapper {
        architecture: GEMMA3N,
        model_type: "gemma3n",
        models: "Gemma 3n",
        texts: &[TextModel {
            family: Family { architecture: GEMMA3N, ..gemma3n::FAMILY },
            sizes: sizes([262_400, 2_048, 16_384, 35, 8]),
            experts: &[],
        }],
        may_be_flat: false,
        places: &[INSIDE],
        unread: &[
            "model.vision_tower",
            "model.audio_tower",
            "model.embed_vision",
            "model.embed_audio",
        ],
        vision: &[],
        audio: None,
    },
    Wrapper {
        architecture: GEMMA4,
        model_type: "gemma4",
        models: "Gemma 4",
        texts: &[TextModel {
            family: Family { architecture: GEMMA4, ..gemma4::FAMILY },
            sizes: sizes([262_144, 2_304, 9_216, 30, 8]),
            experts: &[],
        }],
        may_be_flat: false,
        places: &[INSIDE],
        unread: &[
            "model.vision_tower",
            "model.audio_tower",
            "model.embed_vision",
            "model.embed_audio",
        ],
        vision: &[VisionFamily::Gemma4],
        audio: None,
    },
    Wrapper {
        architecture: LLAMA4,
        model_type: "llama4",
        models: "Llama 4 Scout and Maverick",
        texts: &[TextModel {
            family: Family { architecture: LLAMA4, ..llama4::FAMILY },
            sizes: sizes([202_048, 5_120, 8_192, 48, 40]),
            experts: &[],
        }],
        may_be_flat: false,
        places: &[BESIDE],
        unread: &["vision_model", "multi_modal_projector"],
        vision: &[VisionFamily::Llama4],
        audio: None,
    },
    Wrapper {
        architecture: MISTRAL3,
        model_type: "mistral3",
        models: "Mistral Small from 3.1 on, Mistral Small 4, Ministral 3, Devstral Small 2",
        texts: &[
            TextModel {
                family: Family { architecture: MISTRAL3, ..mistral::FAMILY },
                sizes: sizes([32_000, 4_096, 14_336, 32, 32]),
                experts: &[],
            },
            TextModel {
                family: Family { architecture: MISTRAL3, ..ministral3::FAMILY },
                sizes: sizes([131_072, 4_096, 14_336, 34, 32]),
                experts: &[],
            },
            TextModel {
                family: Family { architecture: MISTRAL3, ..mistral4::FAMILY },
                sizes: sizes([131_072, 4_096, 12_288, 36, 32]),
                experts: &[],
            },
        ],
        may_be_flat: false,
        places: &[BESIDE, INSIDE],
        unread: TOWER,
        vision: &[VisionFamily::Mistral3],
        audio: None,
    },
    Wrapper {
        architecture: LLAVA,
        model_type: "llava",
        models: "LLaVA 1.5, Pixtral 12B, and others with a text model of Llama, Mistral, Qwen2, Qwen3 \
                 or Granite",
        texts: &[
            TextModel {
                family: Family { architecture: LLAVA, ..llama::FAMILY },
                sizes: sizes([32_000, 4_096, 11_008, 32, 32]),
                experts: &[],
            },
            TextModel {
                family: Family { architecture: LLAVA, ..mistral::FAMILY },
                sizes: sizes([32_000, 4_096, 14_336, 32, 32]),
                experts: &[],
            },
            TextModel {
                family: Family { architecture: LLAVA, ..qwen2::FAMILY },
                sizes: sizes([151_936, 4_096, 22_016, 32, 32]),
                experts: &[],
            },
            TextModel {
                family: Family { architecture: LLAVA, ..qwen3::FAMILY },
                sizes: sizes([151_936, 4_096, 22_016, 32, 32]),
                experts: &[],
            },
            TextModel {
                family: Family { architecture: LLAVA, ..granite::FAMILY },
                sizes: sizes([32_000, 4_096, 11_008, 32, 32]),
                experts: &[],
            },
        ],
        may_be_flat: false,
        places: &[BESIDE, INSIDE],
        unread: TOWER,
        vision: &[VisionFamily::Clip, VisionFamily::Siglip, VisionFamily::Pixtral],
        audio: None,
    },
    Wrapper {
        architecture: QWEN2_VL,
        model_type: "qwen2_vl",
        models: "Qwen2-VL, QVQ",
        texts: &[TextModel {
            family: Family { architecture: QWEN2_VL, model_type: "qwen2_vl_text", ..QWEN2_VL_TEXT },
            sizes: QWEN2_VL_SIZES,
            experts: &[],
        }],
        may_be_flat: true,
        places: &[INSIDE, PLAIN],
        unread: VISUAL,
        vision: &[VisionFamily::Qwen2Vl],
        audio: None,
    },
    Wrapper {
        architecture: QWEN2_5_VL,
        model_type: "qwen2_5_vl",
        models: "Qwen2.5-VL",
        texts: &[TextModel {
            family: Family {
                architecture: QWEN2_5_VL,
                model_type: "qwen2_5_vl_text",
                ..QWEN2_VL_TEXT
            },
            sizes: QWEN2_VL_SIZES,
            experts: &[],
        }],
        may_be_flat: true,
        places: &[INSIDE, PLAIN],
        unread: VISUAL,
        vision: &[VisionFamily::Qwen2_5Vl],
        audio: None,
    },
    Wrapper {
        architecture: QWEN3_VL,
        model_type: "qwen3_vl",
        models: "Qwen3-VL, the dense models",
        texts: &[TextModel {
            family: Family { architecture: QWEN3_VL, ..QWEN3_VL_TEXT },
            sizes: QWEN3_VL_SIZES,
            experts: &[],
        }],
        may_be_flat: false,
        places: &[INSIDE],
        unread: VISUAL,
        vision: &[VisionFamily::Qwen3Vl],
        audio: None,
    },
    Wrapper {
        architecture: QWEN3_VL_MOE,
        model_type: "qwen3_vl_moe",
        models: "Qwen3-VL-30B-A3B, Qwen3-VL-235B-A22B",
        texts: &[TextModel {
            family: Family {
                architecture: QWEN3_VL_MOE,
                model_type: "qwen3_vl_moe_text",
                defaults: Defaults {
                    num_key_value_heads: Some(16),
                    max_position_embeddings: 128_000,
                    rope_theta: 500_000.0,
                    ..qwen3_moe::FAMILY.defaults
                },
                windows: WindowRule::Never,
                rope: AXES_IN_TURNS,
                names: WeightNames {
                    moe: MoeNames { experts: EXPERTS_BY_INPUT, ..qwen3_moe::FAMILY.names.moe },
                    ..qwen3_moe::FAMILY.names
                },
                adjust: qwen3_vl_moe,
                ..qwen3_moe::FAMILY
            },
            sizes: sizes([151_936, 2_048, 5_632, 24, 16]),
            experts: &[EXPERTS_BY_INPUT, EXPERTS_BY_OUTPUT],
        }],
        may_be_flat: false,
        places: &[INSIDE],
        unread: VISUAL,
        vision: &[VisionFamily::Qwen3Vl],
        audio: None,
    },
    Wrapper {
        architecture: QWEN3_5,
        model_type: "qwen3_5",
        models: "Qwen3.5 and 3.6, the dense models",
        texts: &[TextModel {
            family: Family {
                architecture: QWEN3_5,
                rope: PARTIAL_AXES_IN_TURNS,
                ..qwen3_5::FAMILY
            },
            sizes: QWEN3_5_SIZES,
            experts: &[],
        }],
        may_be_flat: false,
        places: &[INSIDE],
        unread: VISUAL_AND_MTP,
        vision: &[VisionFamily::Qwen3_5],
        audio: None,
    },
    Wrapper {
        architecture: QWEN3_5_MOE,
        model_type: "qwen3_5_moe",
        models: "Qwen3.5 and 3.6 with experts",
        texts: &[TextModel {
            family: Family {
                architecture: QWEN3_5_MOE,
                rope: PARTIAL_AXES_IN_TURNS,
                ..qwen3_5_moe::FAMILY
            },
            sizes: sizes([248_320, 2_048, 12_288, 40, 16]),
            experts: &[EACH_EXPERT, EXPERTS_BY_OUTPUT],
        }],
        may_be_flat: false,
        places: &[INSIDE],
        unread: VISUAL_AND_MTP,
        vision: &[VisionFamily::Qwen3_5],
        audio: None,
    },
    Wrapper {
        architecture: GLM4V,
        model_type: "glm4v",
        models: "GLM-4.1V, GLM-4.6V Flash",
        texts: &[TextModel {
            family: Family {
                architecture: GLM4V,
                model_type: "glm4v_text",
                defaults: Defaults {
                    head_dim: None,
                    max_position_embeddings: 32_768,
                    norm_eps: 1e-5,
                    ..glm4::FAMILY.defaults
                },
                qkv_bias: Bias::Always,
                positions: PositionRule::Rotary { is_interleaved: true, percent: 100 },
                rope: PARTIAL_AXES,
                // HF `Glm4vTextConfig` has no end tokens of its own.
                adjust: as_read,
                ..glm4::FAMILY
            },
            sizes: sizes([151_552, 4_096, 13_696, 40, 32]),
            experts: &[],
        }],
        may_be_flat: false,
        places: &[INSIDE],
        unread: VISUAL,
        vision: &[VisionFamily::Glm4v],
        audio: None,
    },
    Wrapper {
        architecture: GLM4V_MOE,
        model_type: "glm4v_moe",
        models: "GLM-4.5V, GLM-4.6V",
        texts: &[TextModel {
            family: Family {
                architecture: GLM4V_MOE,
                model_type: "glm4v_moe_text",
                defaults: Defaults { max_position_embeddings: 65_536, ..glm4_moe::FAMILY.defaults },
                qkv_bias: Bias::UnlessUnset("attention_bias"),
                rope: PARTIAL_AXES,
                ..glm4_moe::FAMILY
            },
            sizes: sizes([151_424, 4_096, 10_944, 46, 96]),
            experts: &[],
        }],
        may_be_flat: false,
        places: &[INSIDE],
        unread: VISUAL,
        vision: &[VisionFamily::Glm4v],
        audio: None,
    },
    qwen4_exp::WRAPPER,
    gemma4_unified::WRAPPER,
    in_tiles::LLAVA_NEXT,
    in_tiles::IDEFICS3,
    in_tiles::SMOLVLM,
    in_tiles::INTERNVL,
    in_tiles::INTERNVL_CHAT,
    in_tiles::AYA_VISION,
    in_tiles::COHERE2_VISION,
    in_tiles::LFM2_VL,
    llava_onevision::WRAPPER,
    llava_next_video::WRAPPER,
    interns1::WRAPPER,
    exaone4_5::WRAPPER,
    minicpmv::WRAPPER,
    dots_ocr::WRAPPER,
    deepseek_ocr::WRAPPER,
    deepseek_ocr::SECOND,
    got_ocr2::WRAPPER,
    ovis2::WRAPPER,
    blip2::WRAPPER,
    paligemma::WRAPPER,
    aria::WRAPPER,
    molmo2::WRAPPER,
    kimi_vl::KIMI_VL,
    kimi_vl::KIMI_K25,
    readers::GLM_OCR,
    readers::LIGHTON_OCR,
    readers::LIGHTON_OCR_WITH_MISTRAL3,
    readers::PADDLEOCR_VL,
    hearing::QWEN2_AUDIO,
    hearing::VOXTRAL,
    hearing::AUDIO_FLAMINGO_3,
    hearing::MUSIC_FLAMINGO,
    hearing::GLM_ASR,
    hearing::QWEN3_ASR,
    granite_speech::GRANITE_SPEECH,
    granite_speech::GRANITE_SPEECH_PLUS,
    omni::QWEN2_5_OMNI,
    omni::QWEN3_OMNI,
    phi3_v::PHI3_V,
    phi4_multimodal::PHI4_MULTIMODAL,
    phi4_multimodal::PHI4MM,
];

const GEMMA3: &str = "Gemma3ForConditionalGeneration";
const GEMMA3N: &str = "Gemma3nForConditionalGeneration";
const GEMMA4: &str = "Gemma4ForConditionalGeneration";
const LLAMA4: &str = "Llama4ForConditionalGeneration";
const MISTRAL3: &str = "Mistral3ForConditionalGeneration";
const LLAVA: &str = "LlavaForConditionalGeneration";
const QWEN2_VL: &str = "Qwen2VLForConditionalGeneration";
const QWEN2_5_VL: &str = "Qwen2_5_VLForConditionalGeneration";
const QWEN3_VL: &str = "Qwen3VLForConditionalGeneration";
const QWEN3_VL_MOE: &str = "Qwen3VLMoeForConditionalGeneration";
const QWEN3_5: &str = "Qwen3_5ForConditionalGeneration";
const QWEN3_5_MOE: &str = "Qwen3_5MoeForConditionalGeneration";
const GLM4V: &str = "Glm4vForConditionalGeneration";
const GLM4V_MOE: &str = "Glm4vMoeForConditionalGeneration";

/// Returns sizes in the order of [`TextSizes`].
pub(super) const fn sizes(sizes: [usize; 5]) -> TextSizes {
    let [vocab_size, hidden_size, intermediate_size, num_hidden_layers, num_attention_heads] =
        sizes;
    TextSizes { vocab_size, hidden_size, intermediate_size, num_hidden_layers, num_attention_heads }
}

pub(super) const AXES: RopeRule = RopeRule { axes: AxesRule::InSections, ..llama::ROPE };
pub(super) const AXES_IN_TURNS: RopeRule = RopeRule { axes: AxesRule::InTurns, ..llama::ROPE };
pub(super) const PARTIAL_AXES_IN_TURNS: RopeRule =
    RopeRule { axes: AxesRule::InTurns, ..llama::PARTIAL_ROPE };
pub(super) const PARTIAL_AXES: RopeRule =
    RopeRule { axes: AxesRule::InSections, ..llama::PARTIAL_ROPE };

/// HF `Qwen2VLTextConfig` and `Qwen2_5_VLTextConfig`.
pub(super) const QWEN2_VL_TEXT: Family = Family {
    defaults: Defaults {
        num_key_value_heads: Some(8),
        rope_theta: 1_000_000.0,
        norm_eps: 1e-5,
        ..qwen2::FAMILY.defaults
    },
    rope: AXES,
    ..qwen2::FAMILY
};
pub(super) const QWEN2_VL_SIZES: TextSizes = sizes([152_064, 8_192, 29_568, 80, 64]);

/// HF `Qwen3VLTextConfig`.
pub(super) const QWEN3_VL_TEXT: Family = Family {
    model_type: "qwen3_vl_text",
    defaults: Defaults {
        max_position_embeddings: 128_000,
        rope_theta: 500_000.0,
        ..qwen3::FAMILY.defaults
    },
    windows: WindowRule::Never,
    rope: AXES_IN_TURNS,
    ..qwen3::FAMILY
};
pub(super) const QWEN3_VL_SIZES: TextSizes = sizes([151_936, 4_096, 22_016, 32, 32]);

pub(super) const QWEN3_5_SIZES: TextSizes = sizes([248_320, 4_096, 12_288, 32, 16]);

/// `mtp` predicts several tokens a step.
pub(super) const VISUAL_AND_MTP: &[&str] = &["visual", "model.visual", "mtp", "model.mtp"];

/// Published checkpoints of Qwen3-VL.
const EXPERTS_BY_INPUT: ExpertNames = ExpertNames::Fused {
    inner: "mlp.experts.gate_up_proj",
    down_proj: "mlp.experts.down_proj",
    is_interleaved: false,
};
/// Published checkpoints of Qwen3.5, and those of Qwen3-VL that transformers 5 writes.
pub(super) const EXPERTS_BY_OUTPUT: ExpertNames = ExpertNames::FusedByOutput {
    inner: "mlp.experts.gate_up_proj",
    down_proj: "mlp.experts.down_proj",
};
/// Checkpoints of Qwen3.5 that transformers 5 writes.
pub(super) const EACH_EXPERT: ExpertNames = llama::MOE.experts;

/// Reads the fields of Gemma 3. HF's class has a cap of logits for its text model alone, and vLLM's
/// for both, so no value is served. Published models have none.
fn gemma3(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    const CAP: &str = "final_logit_softcapping";
    match fields.value(CAP) {
        Some(_) => Err(fields.invalid(CAP, "null: transformers does not apply it in this class")),
        None => gemma3::adjust(fields, config),
    }
}

/// Reads the experts of HF `Qwen3VLMoeTextConfig`, whose scores always add up to 1.
fn qwen3_vl_moe(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    let num_experts = fields.count("num_experts")?.unwrap_or(60);
    if num_experts == 0 {
        return Ok(());
    }
    let moe = MoeConfig {
        num_experts,
        top_k: fields.size("num_experts_per_tok")?.unwrap_or(4),
        intermediate_size: fields.size("moe_intermediate_size")?.unwrap_or(1_408),
        renormalize: true,
        ..qwen2_moe::common(fields, config)?
    };
    config.set_experts(fields, &moe, qwen2_moe::sparse_layers(fields)?)
}
