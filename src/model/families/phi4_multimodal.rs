//! Phi-4-multimodal, whose text model is that of Phi-4-mini: HF `Phi4MultimodalForCausalLM`
//! (<https://arxiv.org/abs/2503.01743>).
//!
//! The published folder is in the form of its authors' code, `Phi4MMForCausalLM`. There the layers
//! of the text model are those of PEFT, with the tensors of two adapters beside each weight. One is
//! for prompts with images, and the other one for those with sounds. The weights alone are read.
//! The folder has the adapters once more as `vision-lora` and `speech-lora`.

use super::wrappers::sizes;
use super::{
    ConfigError, Defaults, Family, Fields, ModelConfig, TextModel, TextPlace, VisionFamily,
    Wrapper, phi3,
};

const CLASS: &str = "Phi4MultimodalForCausalLM";
const CLASS_OF_AUTHORS: &str = "Phi4MMForCausalLM";

/// The text model is the whole model, with the other parts inside of it.
const PLACES: &[TextPlace] = &[TextPlace { base: "model", lm_head: "lm_head" }];
const UNREAD: &[&str] = &["model.embed_tokens_extend"];

/// The end tokens of a config that has none.
const EOS: [u32; 2] = [199_999, 200_020];

/// HF `Phi4MultimodalConfig`.
const TEXT: Family = Family {
    architecture: CLASS,
    model_type: "phi4_multimodal",
    defaults: Defaults {
        num_key_value_heads: Some(8),
        max_position_embeddings: 131_072,
        ..phi3::FAMILY.defaults
    },
    adjust,
    ..phi3::FAMILY
};

/// Phi-4-multimodal in the form of transformers.
pub(super) const PHI4_MULTIMODAL: Wrapper = Wrapper {
    architecture: CLASS,
    model_type: "phi4_multimodal",
    models: "Phi-4-multimodal, in the form of transformers",
    texts: &[TextModel {
        family: TEXT,
        sizes: sizes([200_064, 3_072, 8_192, 32, 32]),
        experts: &[],
    }],
    may_be_flat: true,
    places: PLACES,
    unread: UNREAD,
    vision: &[VisionFamily::Phi4],
    audio: None,
};

/// Phi-4-multimodal in the form of its authors' code.
pub(super) const PHI4MM: Wrapper = Wrapper {
    architecture: CLASS_OF_AUTHORS,
    model_type: "phi4mm",
    models: "Phi-4-multimodal, in the form of its authors",
    texts: &[TextModel {
        family: Family { architecture: CLASS_OF_AUTHORS, model_type: "phi4mm", ..TEXT },
        sizes: sizes([200_064, 3_072, 8_192, 32, 32]),
        experts: &[],
    }],
    may_be_flat: true,
    places: PLACES,
    unread: UNREAD,
    vision: &[VisionFamily::Phi4],
    audio: None,
};

fn adjust(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    if fields.value("eos_token_id").is_none() {
        config.eos_token_ids = EOS.to_vec();
    }
    Ok(())
}
