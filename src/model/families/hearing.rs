//! Multimodal classes that hear, and the families of their text models.

use super::wrappers::{BESIDE, IN_THINKER, INSIDE, sizes};
use super::{AudioFamily, Defaults, Family, SoundTower, TextModel, Wrapper, llama, qwen2, qwen3};

const QWEN2_AUDIO_CLASS: &str = "Qwen2AudioForConditionalGeneration";
const VOXTRAL_CLASS: &str = "VoxtralForConditionalGeneration";
const AUDIO_FLAMINGO_3_CLASS: &str = "AudioFlamingo3ForConditionalGeneration";
const MUSIC_FLAMINGO_CLASS: &str = "MusicFlamingoForConditionalGeneration";
const GLM_ASR_CLASS: &str = "GlmAsrForConditionalGeneration";
const QWEN3_ASR_CLASS: &str = "Qwen3ASRForConditionalGeneration";

/// A tower and a projector, beside the text model or inside of `model`.
const TOWER: &[&str] =
    &["audio_tower", "multi_modal_projector", "model.audio_tower", "model.multi_modal_projector"];

/// Qwen2-Audio.
pub(super) const QWEN2_AUDIO: Wrapper = Wrapper {
    architecture: QWEN2_AUDIO_CLASS,
    model_type: "qwen2_audio",
    models: "Qwen2-Audio",
    texts: &[TextModel {
        family: Family { architecture: QWEN2_AUDIO_CLASS, ..qwen2::FAMILY },
        sizes: sizes([151_936, 4_096, 22_016, 32, 32]),
        experts: &[],
    }],
    may_be_flat: false,
    places: &[BESIDE, INSIDE],
    unread: TOWER,
    vision: &[],
    audio: Some(SoundTower::Hearing(AudioFamily::Qwen2Audio)),
};

/// Voxtral, in the form of transformers.
pub(super) const VOXTRAL: Wrapper = Wrapper {
    architecture: VOXTRAL_CLASS,
    model_type: "voxtral",
    models: "Voxtral Mini and Small, in the form of transformers",
    texts: &[TextModel {
        family: Family {
            architecture: VOXTRAL_CLASS,
            defaults: Defaults {
                num_key_value_heads: Some(8),
                head_dim: Some(128),
                max_position_embeddings: 131_072,
                rope_theta: 100_000_000.0,
                norm_eps: 1e-5,
                ..llama::FAMILY.defaults
            },
            ..llama::FAMILY
        },
        sizes: sizes([131_072, 3_072, 8_192, 30, 32]),
        experts: &[],
    }],
    may_be_flat: false,
    places: &[BESIDE, INSIDE],
    unread: TOWER,
    vision: &[],
    audio: Some(SoundTower::Hearing(AudioFamily::Voxtral)),
};

/// Audio Flamingo 3.
pub(super) const AUDIO_FLAMINGO_3: Wrapper = Wrapper {
    architecture: AUDIO_FLAMINGO_3_CLASS,
    model_type: "audioflamingo3",
    models: "Audio Flamingo 3, in the form of transformers",
    texts: &[TextModel {
        family: Family { architecture: AUDIO_FLAMINGO_3_CLASS, ..qwen2::FAMILY },
        sizes: sizes([151_936, 4_096, 22_016, 32, 32]),
        experts: &[],
    }],
    may_be_flat: false,
    places: &[BESIDE, INSIDE],
    unread: TOWER,
    vision: &[],
    audio: Some(SoundTower::Hearing(AudioFamily::AudioFlamingo3)),
};

/// Music Flamingo.
pub(super) const MUSIC_FLAMINGO: Wrapper = Wrapper {
    architecture: MUSIC_FLAMINGO_CLASS,
    model_type: "musicflamingo",
    models: "Music Flamingo, in the form of transformers",
    texts: &[TextModel {
        family: Family { architecture: MUSIC_FLAMINGO_CLASS, ..qwen2::FAMILY },
        sizes: sizes([151_936, 4_096, 22_016, 32, 32]),
        experts: &[],
    }],
    may_be_flat: false,
    places: &[BESIDE, INSIDE],
    unread: TOWER,
    vision: &[],
    audio: Some(SoundTower::Hearing(AudioFamily::MusicFlamingo)),
};

/// GLM-ASR.
pub(super) const GLM_ASR: Wrapper = Wrapper {
    architecture: GLM_ASR_CLASS,
    model_type: "glmasr",
    models: "GLM-ASR Nano, in the form of transformers",
    texts: &[TextModel {
        family: Family {
            architecture: GLM_ASR_CLASS,
            defaults: Defaults {
                num_key_value_heads: Some(4),
                max_position_embeddings: 8_192,
                norm_eps: 1e-5,
                ..llama::FAMILY.defaults
            },
            ..llama::FAMILY
        },
        sizes: sizes([59_264, 2_048, 6_144, 28, 16]),
        experts: &[],
    }],
    may_be_flat: false,
    places: &[BESIDE, INSIDE],
    unread: TOWER,
    vision: &[],
    audio: Some(SoundTower::Hearing(AudioFamily::GlmAsr)),
};

/// Qwen3-ASR.
pub(super) const QWEN3_ASR: Wrapper = Wrapper {
    architecture: QWEN3_ASR_CLASS,
    model_type: "qwen3_asr",
    models: "Qwen3-ASR, as published and in the form of transformers",
    texts: &[
        TextModel {
            family: Family { architecture: QWEN3_ASR_CLASS, ..qwen3::FAMILY },
            sizes: sizes([151_936, 4_096, 22_016, 32, 32]),
            experts: &[],
        },
        // The published form, by vLLM's `Qwen3ASRTextConfig`.
        TextModel {
            family: Family {
                architecture: QWEN3_ASR_CLASS,
                model_type: "qwen3_asr_text",
                defaults: Defaults {
                    num_key_value_heads: Some(32),
                    head_dim: Some(128),
                    max_position_embeddings: 128_000,
                    rope_theta: 5_000_000.0,
                    ..qwen3::FAMILY.defaults
                },
                ..qwen3::FAMILY
            },
            sizes: sizes([151_936, 4_096, 22_016, 32, 32]),
            experts: &[],
        },
    ],
    may_be_flat: false,
    places: &[INSIDE, IN_THINKER],
    unread: &["model.audio_tower", "model.multi_modal_projector", "thinker.audio_tower"],
    vision: &[],
    audio: Some(SoundTower::Hearing(AudioFamily::Qwen3Asr)),
};
