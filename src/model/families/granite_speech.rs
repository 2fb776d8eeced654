//! Granite Speech: Granite behind a Conformer and a Q-Former (HF
//! `GraniteSpeechForConditionalGeneration`, <https://arxiv.org/abs/2505.08699>). In its Plus form,
//! the Q-Former sees the states of several layers.
//!
//! The folder of a model with `has_lora_adapter` has an adapter for prompts with sounds, too. As in
//! vLLM, requests name it.

use super::wrappers::{BESIDE, INSIDE, sizes};
use super::{Family, SoundTower, TextModel, TextPlace, Wrapper, granite};

const CLASS: &str = "GraniteSpeechForConditionalGeneration";
const PLUS_CLASS: &str = "GraniteSpeechPlusForConditionalGeneration";

/// Some versions of transformers 5 wrote the text model one module deeper.
const DEEPER: TextPlace =
    TextPlace { base: "language_model.model.model", lm_head: "language_model.lm_head" };

/// Granite Speech.
pub(super) const GRANITE_SPEECH: Wrapper = Wrapper {
    architecture: CLASS,
    model_type: "granite_speech",
    models: "Granite Speech",
    texts: &[TextModel {
        family: Family { architecture: CLASS, ..granite::FAMILY },
        sizes: sizes([32_000, 4_096, 11_008, 32, 32]),
        experts: &[],
    }],
    may_be_flat: false,
    places: &[BESIDE, INSIDE, DEEPER],
    unread: &["encoder", "projector", "model.encoder", "model.projector"],
    vision: &[],
    audio: Some(SoundTower::GraniteSpeech),
};

/// Granite Speech Plus.
pub(super) const GRANITE_SPEECH_PLUS: Wrapper = Wrapper {
    architecture: PLUS_CLASS,
    model_type: "granite_speech_plus",
    models: "Granite Speech Plus",
    texts: &[TextModel {
        family: Family { architecture: PLUS_CLASS, ..granite::FAMILY },
        sizes: sizes([32_000, 4_096, 11_008, 32, 32]),
        experts: &[],
    }],
    ..GRANITE_SPEECH
};
