//! Multimodal classes that see an image in tiles, and the families of their text models.

use super::wrappers::{BESIDE, INSIDE, TOWER, sizes};
use super::{
    Family, TextModel, TextPlace, VisionFamily, WeightNames, Wrapper, cohere, cohere2, gpt_oss,
    granite, internlm2, lfm2, llama, mistral, phi3, qwen2, qwen3, qwen3_moe,
};

const LLAVA_NEXT_CLASS: &str = "LlavaNextForConditionalGeneration";
const IDEFICS3_CLASS: &str = "Idefics3ForConditionalGeneration";
const SMOLVLM_CLASS: &str = "SmolVLMForConditionalGeneration";
const INTERNVL_CLASS: &str = "InternVLForConditionalGeneration";
const INTERNVL_CHAT_CLASS: &str = "InternVLChatModel";
const AYA_VISION_CLASS: &str = "AyaVisionForConditionalGeneration";
const LFM2_VL_CLASS: &str = "Lfm2VlForConditionalGeneration";
const COHERE2_VISION_CLASS: &str = "Cohere2VisionForConditionalGeneration";

/// The text model of Idefics 3.
const TEXT_MODEL: TextPlace = TextPlace { base: "model.text_model", lm_head: "lm_head" };

/// LLaVA-NeXT.
pub(super) const LLAVA_NEXT: Wrapper = Wrapper {
    architecture: LLAVA_NEXT_CLASS,
    model_type: "llava_next",
    models: "LLaVA 1.6 (LLaVA-NeXT), Granite Vision",
    texts: &[
        TextModel {
            family: Family { architecture: LLAVA_NEXT_CLASS, ..llama::FAMILY },
            sizes: sizes([32_000, 4_096, 11_008, 32, 32]),
            experts: &[],
        },
        TextModel {
            family: Family { architecture: LLAVA_NEXT_CLASS, ..mistral::FAMILY },
            sizes: sizes([32_000, 4_096, 14_336, 32, 32]),
            experts: &[],
        },
        TextModel {
            family: Family { architecture: LLAVA_NEXT_CLASS, ..qwen2::FAMILY },
            sizes: sizes([151_936, 4_096, 22_016, 32, 32]),
            experts: &[],
        },
        TextModel {
            family: Family { architecture: LLAVA_NEXT_CLASS, ..qwen3::FAMILY },
            sizes: sizes([151_936, 4_096, 22_016, 32, 32]),
            experts: &[],
        },
        TextModel {
            family: Family { architecture: LLAVA_NEXT_CLASS, ..granite::FAMILY },
            sizes: sizes([32_000, 4_096, 11_008, 32, 32]),
            experts: &[],
        },
    ],
    may_be_flat: false,
    places: &[BESIDE, INSIDE],
    unread: &[
        "vision_tower",
        "multi_modal_projector",
        "image_newline",
        "model.vision_tower",
        "model.multi_modal_projector",
        "model.image_newline",
    ],
    vision: &[VisionFamily::LlavaNext, VisionFamily::LlavaNextSiglip],
    audio: None,
};

/// Idefics 3, and the first SmolVLM.
pub(super) const IDEFICS3: Wrapper = Wrapper {
    architecture: IDEFICS3_CLASS,
    model_type: "idefics3",
    models: "Idefics 3, SmolVLM",
    texts: &[TextModel {
        family: Family { architecture: IDEFICS3_CLASS, ..llama::FAMILY },
        sizes: sizes([32_000, 4_096, 11_008, 32, 32]),
        experts: &[],
    }],
    may_be_flat: false,
    places: &[TEXT_MODEL],
    unread: &["model.vision_model", "model.connector"],
    vision: &[VisionFamily::Idefics3],
    audio: None,
};

/// SmolVLM 2.
pub(super) const SMOLVLM: Wrapper = Wrapper {
    architecture: SMOLVLM_CLASS,
    model_type: "smolvlm",
    models: "SmolVLM 2",
    texts: &[TextModel {
        family: Family { architecture: SMOLVLM_CLASS, ..llama::FAMILY },
        sizes: sizes([32_000, 4_096, 11_008, 32, 32]),
        experts: &[],
    }],
    may_be_flat: false,
    places: &[TEXT_MODEL],
    unread: &["model.vision_model", "model.connector"],
    vision: &[VisionFamily::Idefics3],
    audio: None,
};

/// InternVL in the form of transformers.
pub(super) const INTERNVL: Wrapper = Wrapper {
    architecture: INTERNVL_CLASS,
    model_type: "internvl",
    models: "InternVL 3 and 3.5, in the form of transformers",
    texts: &[
        TextModel {
            family: Family { architecture: INTERNVL_CLASS, ..qwen2::FAMILY },
            sizes: sizes([151_936, 4_096, 22_016, 32, 32]),
            experts: &[],
        },
        TextModel {
            family: Family { architecture: INTERNVL_CLASS, ..qwen3::FAMILY },
            sizes: sizes([151_936, 4_096, 22_016, 32, 32]),
            experts: &[],
        },
        TextModel {
            family: Family { architecture: INTERNVL_CLASS, ..qwen3_moe::FAMILY },
            sizes: sizes([151_936, 2_048, 6_144, 24, 32]),
            experts: &[],
        },
        TextModel {
            family: Family { architecture: INTERNVL_CLASS, ..gpt_oss::FAMILY },
            sizes: sizes([201_088, 2_880, 2_880, 36, 64]),
            experts: &[],
        },
        TextModel {
            family: Family { architecture: INTERNVL_CLASS, ..llama::FAMILY },
            sizes: sizes([32_000, 4_096, 11_008, 32, 32]),
            experts: &[],
        },
    ],
    may_be_flat: false,
    places: &[BESIDE, INSIDE],
    unread: TOWER,
    vision: &[VisionFamily::InternVl],
    audio: None,
};

/// InternVL in the form of its authors' code.
pub(super) const INTERNVL_CHAT: Wrapper = Wrapper {
    architecture: INTERNVL_CHAT_CLASS,
    model_type: "internvl_chat",
    models: "InternVL 2, 2.5, 3 and 3.5, in the form of their authors",
    texts: &[
        TextModel {
            family: Family { architecture: INTERNVL_CHAT_CLASS, ..qwen2::FAMILY },
            sizes: sizes([151_936, 4_096, 22_016, 32, 32]),
            experts: &[],
        },
        TextModel {
            family: Family {
                architecture: INTERNVL_CHAT_CLASS,
                // The output layer is beside `model`, and keeps its name.
                names: WeightNames {
                    renamed: &[("output", "language_model.output")],
                    ..internlm2::FAMILY.names
                },
                ..internlm2::FAMILY
            },
            sizes: sizes([103_168, 4_096, 11_008, 32, 32]),
            experts: &[],
        },
        TextModel {
            family: Family { architecture: INTERNVL_CHAT_CLASS, ..llama::FAMILY },
            sizes: sizes([32_000, 4_096, 11_008, 32, 32]),
            experts: &[],
        },
        TextModel {
            family: Family { architecture: INTERNVL_CHAT_CLASS, ..phi3::FAMILY },
            sizes: sizes([32_064, 3_072, 8_192, 32, 32]),
            experts: &[],
        },
        TextModel {
            family: Family { architecture: INTERNVL_CHAT_CLASS, ..qwen3::FAMILY },
            sizes: sizes([151_936, 4_096, 22_016, 32, 32]),
            experts: &[],
        },
        TextModel {
            family: Family { architecture: INTERNVL_CHAT_CLASS, ..qwen3_moe::FAMILY },
            sizes: sizes([151_936, 2_048, 6_144, 24, 32]),
            experts: &[],
        },
        TextModel {
            family: Family { architecture: INTERNVL_CHAT_CLASS, ..gpt_oss::FAMILY },
            sizes: sizes([201_088, 2_880, 2_880, 36, 64]),
            experts: &[],
        },
    ],
    may_be_flat: false,
    places: &[BESIDE],
    unread: &["vision_model", "mlp1"],
    vision: &[VisionFamily::InternVlChat],
    audio: None,
};

/// Aya Vision.
pub(super) const AYA_VISION: Wrapper = Wrapper {
    architecture: AYA_VISION_CLASS,
    model_type: "aya_vision",
    models: "Aya Vision",
    texts: &[
        TextModel {
            family: Family { architecture: AYA_VISION_CLASS, ..cohere2::FAMILY },
            sizes: sizes([256_000, 8_192, 22_528, 40, 64]),
            experts: &[],
        },
        TextModel {
            family: Family { architecture: AYA_VISION_CLASS, ..cohere::FAMILY },
            sizes: sizes([256_000, 8_192, 22_528, 40, 64]),
            experts: &[],
        },
    ],
    may_be_flat: false,
    places: &[BESIDE, INSIDE],
    unread: TOWER,
    vision: &[VisionFamily::AyaVision],
    audio: None,
};

/// Command A Vision.
pub(super) const COHERE2_VISION: Wrapper = Wrapper {
    architecture: COHERE2_VISION_CLASS,
    model_type: "cohere2_vision",
    models: "Command A Vision",
    texts: &[TextModel {
        family: Family { architecture: COHERE2_VISION_CLASS, ..cohere2::FAMILY },
        sizes: sizes([256_000, 8_192, 22_528, 40, 64]),
        experts: &[],
    }],
    places: &[INSIDE, BESIDE],
    vision: &[VisionFamily::Cohere2Vision],
    ..AYA_VISION
};

/// LFM2-VL.
pub(super) const LFM2_VL: Wrapper = Wrapper {
    architecture: LFM2_VL_CLASS,
    model_type: "lfm2_vl",
    models: "LFM2-VL, LFM2.5-VL",
    texts: &[TextModel {
        family: Family { architecture: LFM2_VL_CLASS, ..lfm2::FAMILY },
        sizes: sizes([65_536, 2_560, 12_288, 32, 32]),
        experts: &[],
    }],
    may_be_flat: false,
    places: &[INSIDE],
    unread: TOWER,
    vision: &[VisionFamily::Lfm2Vl],
    audio: None,
};
