//! Qwen2.5-Omni and Qwen3-Omni, of which the thinkers are served: they read, see and hear, and
//! write text (<https://arxiv.org/abs/2503.20215>, <https://arxiv.org/abs/2509.17765>). The parts
//! that speak are `talker`, and `token2wav` or `code2wav`.

use super::wrappers::{AXES, AXES_IN_TURNS, IN_THINKER, PLAIN, sizes};
use super::{
    AudioFamily, ConfigError, Defaults, Family, Fields, ModelConfig, MoeConfig, SoundTower,
    TextModel, VisionFamily, WindowRule, Wrapper, qwen2, qwen2_moe, qwen3_moe,
};

/// The classes of the whole models. Those of the thinkers alone and of published models are read as
/// these.
const CLASS: &str = "Qwen2_5OmniForConditionalGeneration";
const QWEN3_CLASS: &str = "Qwen3OmniMoeForConditionalGeneration";

/// Qwen2.5-Omni.
pub(super) const QWEN2_5_OMNI: Wrapper = Wrapper {
    architecture: CLASS,
    model_type: "qwen2_5_omni",
    models: "Qwen2.5-Omni: texts, images, videos and sounds to text",
    texts: &[TextModel {
        family: Family {
            architecture: CLASS,
            model_type: "qwen2_5_omni_text",
            defaults: Defaults {
                num_key_value_heads: Some(4),
                rope_theta: 1_000_000.0,
                ..qwen2::FAMILY.defaults
            },
            rope: AXES,
            ..qwen2::FAMILY
        },
        sizes: sizes([152_064, 3_584, 18_944, 28, 28]),
        experts: &[],
    }],
    may_be_flat: false,
    places: &[IN_THINKER, PLAIN],
    unread: &[
        "thinker.audio_tower",
        "thinker.visual",
        "talker",
        "token2wav",
        "audio_tower",
        "visual",
    ],
    vision: &[VisionFamily::Qwen2_5Omni],
    audio: Some(SoundTower::Hearing(AudioFamily::Qwen2_5Omni)),
};

/// Qwen3-Omni.
pub(super) const QWEN3_OMNI: Wrapper = Wrapper {
    architecture: QWEN3_CLASS,
    model_type: "qwen3_omni_moe",
    models: "Qwen3-Omni: texts, images, videos and sounds to text",
    texts: &[TextModel {
        family: Family {
            architecture: QWEN3_CLASS,
            model_type: "qwen3_omni_moe_text",
            defaults: Defaults {
                rope_theta: 1_000_000.0,
                max_position_embeddings: 32_768,
                ..qwen3_moe::FAMILY.defaults
            },
            windows: WindowRule::Never,
            rope: AXES_IN_TURNS,
            adjust: experts,
            ..qwen3_moe::FAMILY
        },
        sizes: sizes([3_584, 2_048, 18_944, 28, 28]),
        experts: &[],
    }],
    may_be_flat: false,
    places: &[IN_THINKER, PLAIN],
    unread: &[
        "thinker.audio_tower",
        "thinker.visual",
        "talker",
        "code2wav",
        "audio_tower",
        "visual",
    ],
    vision: &[VisionFamily::Qwen3Omni],
    audio: Some(SoundTower::Hearing(AudioFamily::Qwen3Omni)),
};

/// HF `Qwen3OmniMoeTextConfig`.
fn experts(fields: &Fields, config: &mut ModelConfig) -> Result<(), ConfigError> {
    let num_experts = fields.count("num_experts")?.unwrap_or(128);
    if num_experts == 0 {
        return Ok(());
    }
    let moe = MoeConfig {
        num_experts,
        top_k: fields.size("num_experts_per_tok")?.unwrap_or(8),
        intermediate_size: fields.size("moe_intermediate_size")?.unwrap_or(768),
        renormalize: fields.flag_or("norm_topk_prob", true)?,
        ..qwen2_moe::common(fields, config)?
    };
    config.set_experts(fields, &moe, qwen2_moe::sparse_layers(fields)?)
}
